// The cases with kafka-go.
package main

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"

	"riverlog.compat/harness"
	. "riverlog.compat/harness"
)

var (
	addresses, prefix = harness.Arguments()
	topic             = prefix + "-t"
	groupTopic        = prefix + "-g"
	group             = prefix + "-group"
	client            = &kafka.Client{Addr: kafka.TCP(addresses...), Timeout: 10 * time.Second}
	background        = context.Background()
)

func create(name string, partitions int) error {
	answer, err := client.CreateTopics(background, &kafka.CreateTopicsRequest{
		Topics: []kafka.TopicConfig{{Topic: name, NumPartitions: partitions, ReplicationFactor: -1}},
	})
	if err != nil {
		return err
	}
	return answer.Errors[name]
}

// byNumber puts a record where its value says, for keys would not spread evenly.
var byNumber = kafka.BalancerFunc(func(m kafka.Message, partitions ...int) int {
	n, _ := strconv.Atoi(string(m.Value))
	return partitions[n%len(partitions)]
})

func produce(name string, compression kafka.Compression, messages ...kafka.Message) error {
	writer := &kafka.Writer{
		Addr:         kafka.TCP(addresses...),
		Topic:        name,
		Balancer:     byNumber,
		BatchTimeout: 20 * time.Millisecond,
		RequiredAcks: kafka.RequireAll,
		Compression:  compression,
	}
	return First(writer.WriteMessages(background, messages...), writer.Close())
}

func numbered(n int) kafka.Message {
	return kafka.Message{Key: []byte("k"), Value: []byte(strconv.Itoa(n))}
}

func read(name string, count int, offset int64) ([]kafka.Message, error) {
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: addresses, Topic: name, MaxWait: 100 * time.Millisecond})
	defer reader.Close()
	if err := reader.SetOffset(offset); err != nil {
		return nil, err
	}
	limit, stop := context.WithTimeout(background, 15*time.Second)
	defer stop()
	var found []kafka.Message
	for len(found) < count {
		m, err := reader.ReadMessage(limit)
		if err != nil {
			return nil, fmt.Errorf("%d of %d records: %w", len(found), count, err)
		}
		found = append(found, m)
	}
	return found, nil
}

func partitions(name string) (int, error) {
	answer, err := client.Metadata(background, &kafka.MetadataRequest{Topics: []string{name}})
	if err != nil {
		return 0, err
	}
	return len(answer.Topics[0].Partitions), answer.Topics[0].Error
}

// compaction leaves the newest of each key.
func compaction() error {
	where := prefix + "-compact"
	var settings []kafka.ConfigEntry
	for name, value := range Compact {
		settings = append(settings, kafka.ConfigEntry{ConfigName: name, ConfigValue: value})
	}
	answer, err := client.CreateTopics(background, &kafka.CreateTopicsRequest{
		Topics: []kafka.TopicConfig{{Topic: where, NumPartitions: 1, ReplicationFactor: -1, ConfigEntries: settings}},
	})
	if err := First(err, answer.Errors[where]); err != nil {
		return err
	}
	for _, round := range Rounds {
		var messages []kafka.Message
		for _, r := range round {
			messages = append(messages, kafka.Message{Key: r.Key, Value: r.Value})
		}
		if err := produce(where, 0, messages...); err != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
	return Until("only the newest of each key", func() (bool, error) {
		found, err := read(where, len(Kept), 0)
		var got []string
		for _, m := range found {
			got = append(got, At(m.Offset, m.Key, m.Value))
		}
		return slices.Equal(got, Kept), err
	})
}

func createTopic() error {
	if err := create(topic, 3); err != nil {
		return err
	}
	return Until("three partitions", func() (bool, error) { n, err := partitions(topic); return n == 3, err })
}

func codec(name string, kind kafka.Compression) Case {
	return Case{"codec-" + name, func() error {
		where := prefix + "-" + name
		expected := Records()
		var messages []kafka.Message
		for _, r := range expected {
			m := kafka.Message{Key: r.Key, Value: r.Value}
			for _, h := range r.Headers {
				m.Headers = append(m.Headers, kafka.Header{Key: h.Key, Value: h.Value})
			}
			messages = append(messages, m)
		}
		if err := First(create(where, 1), produce(where, kind, messages...)); err != nil {
			return err
		}
		found, err := read(where, len(expected), 0)
		if err != nil {
			return err
		}
		var got []Record
		for _, m := range found {
			r := Record{Key: m.Key, Value: m.Value}
			for _, h := range m.Headers {
				// The library reads an empty header as nil.
				r.Headers = append(r.Headers, Header{h.Key, append([]byte{}, h.Value...)})
			}
			got = append(got, r)
		}
		return Same(got, expected, "records")
	}}
}

// member of the group: what it read, committed one by one.
type member struct {
	reader *kafka.Reader
	stop   context.CancelFunc
	done   chan struct{}
	lock   sync.Mutex
	got    []kafka.Message
}

func join() *member {
	ctx, stop := context.WithCancel(background)
	m := &member{stop: stop, done: make(chan struct{}), reader: kafka.NewReader(kafka.ReaderConfig{
		Brokers:           addresses,
		GroupID:           group,
		Topic:             groupTopic,
		StartOffset:       kafka.FirstOffset,
		MaxWait:           100 * time.Millisecond,
		SessionTimeout:    6 * time.Second,
		HeartbeatInterval: 300 * time.Millisecond,
		JoinGroupBackoff:  200 * time.Millisecond,
	})}
	go func() {
		defer close(m.done)
		for {
			message, err := m.reader.FetchMessage(ctx)
			if err != nil {
				return
			}
			m.lock.Lock()
			m.got = append(m.got, message)
			m.lock.Unlock()
			if m.reader.CommitMessages(ctx, message) != nil {
				return
			}
		}
	}()
	return m
}

func (m *member) leave() error {
	m.stop()
	<-m.done
	return m.reader.Close()
}

func (m *member) read() []kafka.Message {
	m.lock.Lock()
	defer m.lock.Unlock()
	return slices.Clone(m.got)
}

// settled waits until the group is stable with this many members: a reader doesn't tell what it was given.
func settled(members int) error {
	return Until(fmt.Sprintf("%d members", members), func() (bool, error) {
		answer, err := client.DescribeGroups(background, &kafka.DescribeGroupsRequest{GroupIDs: []string{group}})
		if err != nil {
			return false, err
		}
		g := answer.Groups[0]
		for _, m := range g.Members {
			given := 0
			for _, t := range m.MemberAssignments.Topics {
				given += len(t.Partitions)
			}
			if given != 4/members {
				return false, fmt.Errorf("a member has %d partitions", given)
			}
		}
		return g.GroupState == "Stable" && len(g.Members) == members, nil
	})
}

func groupRebalance() error {
	if err := create(groupTopic, 4); err != nil {
		return err
	}
	first := join()
	if err := settled(1); err != nil {
		return err
	}
	second := join()
	if err := settled(2); err != nil {
		return err
	}
	var messages []kafka.Message
	for n := range 40 {
		messages = append(messages, numbered(n))
	}
	if err := produce(groupTopic, 0, messages...); err != nil {
		return err
	}
	var values []int
	err := Until("40 records", func() (bool, error) {
		values = nil
		for _, m := range append(first.read(), second.read()...) {
			n, err := strconv.Atoi(string(m.Value))
			if err != nil {
				return false, err
			}
			values = append(values, n)
		}
		return len(values) >= 40, nil
	})
	sort.Ints(values)
	expected := make([]int, 40)
	for n := range expected {
		expected[n] = n
	}
	return First(
		err,
		Same(values, expected, "records"),
		Until("committed", func() (bool, error) { return allCommitted() == nil, nil }),
		second.leave(),
		settled(1),
		first.leave(),
	)
}

func allCommitted() error {
	answer, err := client.OffsetFetch(background, &kafka.OffsetFetchRequest{
		GroupID: group, Topics: map[string][]int{groupTopic: {0, 1, 2, 3}},
	})
	if err != nil {
		return err
	}
	offsets := map[int]int64{}
	for _, p := range answer.Topics[groupTopic] {
		offsets[p.Partition] = p.CommittedOffset
	}
	return Same(offsets, map[int]int64{0: 10, 1: 10, 2: 10, 3: 10}, "committed offsets")
}

func groupResumes() error {
	if err := First(allCommitted(), produce(groupTopic, 0, numbered(41))); err != nil {
		return err
	}
	m := join()
	var got []kafka.Message
	err := Until("the new record", func() (bool, error) { got = m.read(); return len(got) > 0, nil })
	if err != nil {
		return err
	}
	text := fmt.Sprintf("%d@%d=%s", got[0].Partition, got[0].Offset, got[0].Value)
	return First(Same(text, "1@10=41", "record"), m.leave())
}

func offsetsByTime() error {
	where := prefix + "-time"
	var messages []kafka.Message
	for n := range 10 {
		m := numbered(n)
		m.Time = Epoch.Add(time.Duration(n) * Step)
		messages = append(messages, m)
	}
	if err := First(create(where, 1), produce(where, 0, messages...)); err != nil {
		return err
	}
	third := Epoch.Add(3 * Step)
	var got []int64
	for _, t := range []time.Time{Epoch, third, third.Add(time.Millisecond)} {
		answer, err := client.ListOffsets(background, &kafka.ListOffsetsRequest{
			Topics: map[string][]kafka.OffsetRequest{where: {kafka.TimeOffsetOf(0, t)}},
		})
		if err != nil {
			return err
		}
		for offset := range answer.Topics[where][0].Offsets {
			got = append(got, offset)
		}
	}
	if err := Same(got, []int64{0, 3, 4}, "offsets by time"); err != nil {
		return err
	}
	ends, err := client.ListOffsets(background, &kafka.ListOffsetsRequest{
		Topics: map[string][]kafka.OffsetRequest{where: {kafka.FirstOffsetOf(0), kafka.LastOffsetOf(0)}},
	})
	if err != nil {
		return err
	}
	p := ends.Topics[where][0]
	if err := Same([]int64{p.FirstOffset, p.LastOffset}, []int64{0, 10}, "first and end offset"); err != nil {
		return err
	}
	found, err := read(where, 1, 7)
	if err != nil {
		return err
	}
	stamp := Epoch.Add(7 * Step).UnixMilli()
	return Same([]int64{found[0].Offset, found[0].Time.UnixMilli()}, []int64{7, stamp}, "record at offset 7")
}

func groupsListed() error {
	answer, err := client.ListGroups(background, &kafka.ListGroupsRequest{})
	if err != nil {
		return err
	}
	listed := slices.ContainsFunc(answer.Groups, func(g kafka.ListGroupsResponseGroup) bool { return g.GroupID == group })
	if !listed {
		return fmt.Errorf("%s isn't listed", group)
	}
	described, err := client.DescribeGroups(background, &kafka.DescribeGroupsRequest{GroupIDs: []string{group}})
	if err != nil {
		return err
	}
	text := fmt.Sprintf("%s %d", described.Groups[0].GroupState, len(described.Groups[0].Members))
	return Same(text, "Empty 0", "state and members")
}

func deleteTopic() error {
	answer, err := client.DeleteTopics(background, &kafka.DeleteTopicsRequest{Topics: []string{topic}})
	if err != nil {
		return err
	}
	if err := answer.Errors[topic]; err != nil {
		return err
	}
	return Until("the topic is gone", func() (bool, error) {
		all, err := client.Metadata(background, &kafka.MetadataRequest{})
		if err != nil {
			return false, err
		}
		there := slices.ContainsFunc(all.Topics, func(t kafka.Topic) bool { return t.Name == topic })
		return !there, nil
	})
}

func main() {
	harness.Run([]Case{
		{"create-topic", createTopic},
		codec("none", 0),
		codec("gzip", kafka.Gzip),
		codec("snappy", kafka.Snappy),
		codec("lz4", kafka.Lz4),
		codec("zstd", kafka.Zstd),
		{"idempotent", func() error { return Skip("kafka-go has no idempotent producer") }},
		{"transactions", func() error { return Skip("kafka-go writes no transactions") }},
		{"transaction-offsets", func() error { return Skip("kafka-go writes no transactions") }},
		{"compaction", compaction},
		{"group-rebalance", groupRebalance},
		{"group-resumes", groupResumes},
		{"group-kip848", func() error { return Skip("kafka-go speaks the classic protocol only") }},
		{"group-migration", func() error { return Skip("kafka-go speaks the classic protocol only") }},
		{"group-migration-cooperative", func() error { return Skip("kafka-go speaks the classic protocol only") }},
		{"share-group", func() error { return Skip("kafka-go has no share groups") }},
		{"share-dead-letters", func() error { return Skip("kafka-go has no share groups") }},
		{"offsets-by-time", offsetsByTime},
		{"groups-listed", groupsListed},
		{"delete-topic", deleteTopic},
	})
}
