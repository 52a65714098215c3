// Command go is producers and consumers of franz-go that write down what they do and what they are told.
//
// The drills start it beside workload.py, whose topic it uses, with the same options, commands and history; what is
// read whole, and who looks at bounds and commits, is that program's affair.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

type options struct {
	bootstrap, history, topic string
	partitions, mostBytes     int
	seed                      int64
	rate                      float64
	transactions              bool
}

// clients is all clients of this program.
type clients struct {
	options
	history *history
	admin   *kadm.Client
	senders []*sender
	readers []*reader
}

const group = "go"

func (o *options) common() []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(strings.Split(o.bootstrap, ",")...),
		kgo.DialTimeout(2 * time.Second),
		kgo.RequestTimeoutOverhead(10 * time.Second),
		kgo.MetadataMaxAge(2 * time.Second),
		kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
		// Only the drill's own limits end a wait.
		kgo.RetryTimeout(5 * time.Minute),
		kgo.RequestRetries(1 << 20),
	}
}

func start(o options) (*clients, error) {
	written, err := newHistory(o.history)
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(o.common()...)
	if err != nil {
		return nil, err
	}
	r := &clients{options: o, history: written, admin: kadm.NewClient(client)}
	names := map[string]bool{"g1": false}
	if o.transactions {
		names["gt1"] = true
	}
	for name, transactions := range names {
		s, err := newSender(r, name, transactions)
		if err != nil {
			return nil, err
		}
		r.senders = append(r.senders, s)
	}
	for _, name := range []string{"gc1", "gc2"} {
		c, err := newReader(r, name)
		if err != nil {
			return nil, err
		}
		r.readers = append(r.readers, c)
	}
	for _, s := range r.senders {
		go s.run()
	}
	for _, c := range r.readers {
		go c.run()
	}
	return r, nil
}

// until waits for condition, and says whether it came to hold in time.
func until(limit time.Duration, condition func() bool) bool {
	end := time.Now().Add(limit)
	for !condition() {
		if time.Now().After(end) {
			return false
		}
		time.Sleep(20 * time.Millisecond)
	}
	return true
}

func (r *clients) read() int64 {
	var all int64
	for _, c := range r.readers {
		all += c.records.Load()
	}
	return all
}

// progress: every producer is answered, and the group gets something.
func (r *clients) progress(limit time.Duration) string {
	before, acked := r.read(), make([]int64, len(r.senders))
	for i, s := range r.senders {
		acked[i] = s.acked.Load()
	}
	still := func() (names []string) {
		for i, s := range r.senders {
			if s.acked.Load() <= acked[i] {
				names = append(names, s.name)
			}
		}
		if r.read() <= before {
			names = append(names, "group "+group)
		}
		return names
	}
	if until(limit, func() bool { return len(still()) == 0 }) {
		return ""
	}
	return "stood still: " + strings.Join(still(), ", ")
}

// quiet: nothing new is sent, and what was sent is answered.
func (r *clients) quiet(limit time.Duration) string {
	for _, s := range r.senders {
		s.quiet.Store(true)
	}
	idle := func() bool {
		for _, s := range r.senders {
			if !s.idle.Load() {
				return false
			}
		}
		return true
	}
	if until(limit, idle) {
		return ""
	}
	return "a producer of franz-go has no answer to what it sent"
}

// drain: the group comes to the end of all partitions.
func (r *clients) drain(limit time.Duration) string {
	ends := map[int32]int64{}
	drained := func() bool {
		if len(ends) == 0 {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			listed, err := r.admin.ListEndOffsets(ctx, r.topic)
			if err != nil || listed.Error() != nil {
				return false
			}
			listed.Each(func(o kadm.ListedOffset) { ends[o.Partition] = o.Offset })
		}
		reached := map[int32]int64{}
		for _, c := range r.readers {
			for partition, offset := range c.reached() {
				reached[partition] = max(reached[partition], offset)
			}
		}
		for partition, end := range ends {
			if reached[partition] < end {
				return false
			}
		}
		return true
	}
	if until(limit, drained) {
		r.history.add("go", "drained", fields{"group": group})
		return ""
	}
	return "group " + group + " did not come to the end"
}

func (r *clients) end() {
	for _, s := range r.senders {
		close(s.stopping)
		<-s.stopped
	}
	for _, c := range r.readers {
		close(c.stopping)
		<-c.stopped
	}
}

func (r *clients) answer(word string, limit time.Duration) string {
	switch word {
	case "progress":
		return r.progress(limit)
	case "quiet":
		return r.quiet(limit)
	case "drain":
		return r.drain(limit)
	case "end":
		r.end()
	}
	return ""
}

func main() {
	var o options
	flag.StringVar(&o.bootstrap, "bootstrap", "", "")
	flag.StringVar(&o.history, "history", "", "")
	flag.StringVar(&o.topic, "topic", "drill", "")
	flag.IntVar(&o.partitions, "partitions", 4, "")
	flag.IntVar(&o.mostBytes, "most-bytes", 1500, "the most bytes of a value")
	flag.Int64Var(&o.seed, "seed", 1, "")
	flag.Float64Var(&o.rate, "rate", 300, "records a second of each producer")
	flag.BoolVar(&o.transactions, "transactions", false, "")
	// Of workload.py only.
	flag.Int("replicas", 1, "")
	flag.Bool("modern", false, "")
	flag.Parse()
	r, err := start(o)
	if err != nil {
		fmt.Printf("no %v\n", err)
		os.Exit(1)
	}
	fmt.Println("ok")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		seconds, err := strconv.ParseFloat(words[len(words)-1], 64)
		if err != nil {
			fmt.Printf("no %v\n", err)
			continue
		}
		said := r.answer(words[0], time.Duration(seconds*float64(time.Second)))
		r.history.flush()
		switch said {
		case "":
			fmt.Println("ok")
		default:
			fmt.Printf("no %s\n", said)
		}
		if words[0] == "end" {
			return
		}
	}
}
