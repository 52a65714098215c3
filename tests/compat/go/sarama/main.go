// The cases with sarama.
package main

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"riverlog.compat/harness"
	. "riverlog.compat/harness"
)

var (
	addresses, prefix = harness.Arguments()
	topic             = prefix + "-t"
	groupTopic        = prefix + "-g"
	group             = prefix + "-group"
)

// config leaves the protocol version as the library chooses it.
func config() *sarama.Config {
	c := sarama.NewConfig()
	c.Producer.Return.Successes = true
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Partitioner = sarama.NewManualPartitioner
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Enable = false
	c.Consumer.MaxWaitTime = 100 * time.Millisecond
	c.Consumer.Group.Session.Timeout = 6 * time.Second
	c.Consumer.Group.Heartbeat.Interval = 300 * time.Millisecond
	return c
}

func withAdmin(work func(sarama.ClusterAdmin) error) error {
	admin, err := sarama.NewClusterAdmin(addresses, config())
	if err != nil {
		return err
	}
	defer admin.Close()
	return work(admin)
}

func create(name string, partitions int32) error { return createWith(name, partitions, nil) }

func createWith(name string, partitions int32, settings map[string]*string) error {
	return withAdmin(func(a sarama.ClusterAdmin) error {
		detail := sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: -1, ConfigEntries: settings}
		return a.CreateTopic(name, &detail, false)
	})
}

func produce(name string, c *sarama.Config, messages []*sarama.ProducerMessage) error {
	producer, err := sarama.NewSyncProducer(addresses, c)
	if err != nil {
		return err
	}
	defer producer.Close()
	for _, m := range messages {
		m.Topic = name
	}
	return producer.SendMessages(messages)
}

func bytes(b []byte) sarama.Encoder {
	if b == nil {
		return nil
	}
	return sarama.ByteEncoder(b)
}

func numbered(n int, partition int32) *sarama.ProducerMessage {
	return &sarama.ProducerMessage{Partition: partition, Key: sarama.StringEncoder("k"), Value: sarama.StringEncoder(strconv.Itoa(n))}
}

func read(name string, count int, offset int64) ([]*sarama.ConsumerMessage, error) {
	return readWith(config(), name, count, offset)
}

// committed are the values that readers of committed records see.
func committed(name string, count int) ([]string, error) {
	c := config()
	c.Consumer.IsolationLevel = sarama.ReadCommitted
	found, err := readWith(c, name, count, 0)
	var values []string
	for _, m := range found {
		values = append(values, string(m.Value))
	}
	return values, err
}

func readWith(c *sarama.Config, name string, count int, offset int64) ([]*sarama.ConsumerMessage, error) {
	consumer, err := sarama.NewConsumer(addresses, c)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(name, 0, offset)
	if err != nil {
		return nil, err
	}
	defer partition.Close()
	var found []*sarama.ConsumerMessage
	for len(found) < count {
		select {
		case m := <-partition.Messages():
			found = append(found, m)
		case <-time.After(15 * time.Second):
			return nil, fmt.Errorf("%d of %d records after 15 s", len(found), count)
		}
	}
	return found, nil
}

func createTopic() error {
	if err := create(topic, 3); err != nil {
		return err
	}
	return withAdmin(func(a sarama.ClusterAdmin) error {
		described, err := a.DescribeTopics([]string{topic})
		if err != nil {
			return err
		}
		return Same(len(described[0].Partitions), 3, "partitions")
	})
}

func codec(name string, kind sarama.CompressionCodec) Case {
	return Case{"codec-" + name, func() error {
		where := prefix + "-" + name
		expected := Records()
		var messages []*sarama.ProducerMessage
		for _, r := range expected {
			m := &sarama.ProducerMessage{Key: bytes(r.Key), Value: bytes(r.Value)}
			for _, h := range r.Headers {
				m.Headers = append(m.Headers, sarama.RecordHeader{Key: []byte(h.Key), Value: h.Value})
			}
			messages = append(messages, m)
		}
		c := config()
		c.Producer.Compression = kind
		if err := First(create(where, 1), produce(where, c, messages)); err != nil {
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
				r.Headers = append(r.Headers, Header{string(h.Key), h.Value})
			}
			got = append(got, r)
		}
		return Same(got, expected, "records")
	}}
}

func idempotent() error {
	where := prefix + "-idempotent"
	c := config()
	c.Producer.Idempotent = true
	c.Net.MaxOpenRequests = 1
	c.Producer.Flush.MaxMessages = 10
	var messages []*sarama.ProducerMessage
	for n := range 200 {
		messages = append(messages, numbered(n, 0))
	}
	if err := First(create(where, 1), produce(where, c, messages)); err != nil {
		return err
	}
	found, err := read(where, 200, 0)
	if err != nil {
		return err
	}
	for n, m := range found {
		if err := Same([]string{fmt.Sprint(m.Offset), string(m.Value)}, []string{fmt.Sprint(n), fmt.Sprint(n)}, "record"); err != nil {
			return err
		}
	}
	return nil
}

func transactional(id string) (sarama.SyncProducer, error) {
	c := config()
	c.Producer.Idempotent = true
	c.Producer.Transaction.ID = id
	c.Producer.Transaction.Timeout = 10 * time.Second
	c.Net.MaxOpenRequests = 1
	return sarama.NewSyncProducer(addresses, c)
}

func sendAll(p sarama.SyncProducer, name string, values ...string) error {
	var messages []*sarama.ProducerMessage
	for _, v := range values {
		messages = append(messages, &sarama.ProducerMessage{Topic: name, Key: sarama.StringEncoder("k"), Value: sarama.StringEncoder(v)})
	}
	return p.SendMessages(messages)
}

func transactions() error {
	where := prefix + "-txn"
	if err := create(where, 1); err != nil {
		return err
	}
	producer, err := transactional(where)
	if err != nil {
		return err
	}
	defer producer.Close()
	for n := range 3 {
		end := producer.CommitTxn
		if n == 1 {
			end = producer.AbortTxn
		}
		values := []string{fmt.Sprintf("%d-0", n), fmt.Sprintf("%d-1", n), fmt.Sprintf("%d-2", n)}
		if err := producer.BeginTxn(); err != nil {
			return err
		}
		if err := First(sendAll(producer, where, values...), end()); err != nil {
			return err
		}
	}
	// A new instance aborts what the old one has open, and fences it.
	if err := First(producer.BeginTxn(), sendAll(producer, where, "late")); err != nil {
		return err
	}
	newer, err := transactional(where)
	if err != nil {
		return err
	}
	defer newer.Close()
	if producer.CommitTxn() == nil {
		return fmt.Errorf("the old instance isn't fenced")
	}
	if err := First(newer.BeginTxn(), sendAll(newer, where, "new"), newer.CommitTxn()); err != nil {
		return err
	}
	got, err := committed(where, 7)
	return First(err, Same(got, []string{"0-0", "0-1", "0-2", "2-0", "2-1", "2-2", "new"}, "records"))
}

func transactionOffsets() error {
	source, target, name := prefix+"-txn-in", prefix+"-txn-out", prefix+"-txn-group"
	var messages []*sarama.ProducerMessage
	for n := range 4 {
		messages = append(messages, numbered(n, 0))
	}
	if err := First(create(source, 1), create(target, 1), produce(source, config(), messages)); err != nil {
		return err
	}
	producer, err := transactional(prefix + "-txn-copy")
	if err != nil {
		return err
	}
	defer producer.Close()
	step := func(at int64, kept bool, expected int64) error {
		records, err := read(source, 2, at)
		if err != nil {
			return err
		}
		offsets := map[string][]*sarama.PartitionOffsetMetadata{source: {{Partition: 0, Offset: at + 2}}}
		end := producer.AbortTxn
		if kept {
			end = producer.CommitTxn
		}
		if err := producer.BeginTxn(); err != nil {
			return err
		}
		err = First(
			sendAll(producer, target, string(records[0].Value), string(records[1].Value)),
			producer.AddOffsetsToTxn(offsets, name),
			end(),
		)
		if err != nil {
			return err
		}
		return withAdmin(func(a sarama.ClusterAdmin) error {
			return Until(fmt.Sprintf("committed offset %d", expected), func() (bool, error) {
				all, err := a.ListConsumerGroupOffsets(name, map[string][]int32{source: {0}})
				if err != nil {
					return false, err
				}
				return all.GetBlock(source, 0).Offset == expected, nil
			})
		})
	}
	for _, err := range []error{step(0, true, 2), step(2, false, 2), step(2, true, 4)} {
		if err != nil {
			return err
		}
	}
	got, err := committed(target, 4)
	return First(err, Same(got, []string{"0", "1", "2", "3"}, "each record once"))
}

// compaction leaves the newest of each key.
func compaction() error {
	where := prefix + "-compact"
	settings := map[string]*string{}
	for name, value := range Compact {
		settings[name] = &value
	}
	if err := createWith(where, 1, settings); err != nil {
		return err
	}
	for _, round := range Rounds {
		var messages []*sarama.ProducerMessage
		for _, r := range round {
			messages = append(messages, &sarama.ProducerMessage{Key: bytes(r.Key), Value: bytes(r.Value)})
		}
		if err := produce(where, config(), messages); err != nil {
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

// member of the group: what it was given and what it read.
type member struct {
	group    sarama.ConsumerGroup
	stop     context.CancelFunc
	done     chan struct{}
	lock     sync.Mutex
	assigned int
	got      []*sarama.ConsumerMessage
}

func (m *member) Setup(s sarama.ConsumerGroupSession) error {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.assigned = len(s.Claims()[groupTopic])
	return nil
}

func (m *member) Cleanup(s sarama.ConsumerGroupSession) error {
	s.Commit()
	return nil
}

func (m *member) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		m.lock.Lock()
		m.got = append(m.got, message)
		m.lock.Unlock()
		s.MarkMessage(message, "")
	}
	return nil
}

func join() (*member, error) {
	g, err := sarama.NewConsumerGroup(addresses, group, config())
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	m := &member{group: g, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(m.done)
		for ctx.Err() == nil && g.Consume(ctx, []string{groupTopic}, m) == nil {
		}
	}()
	return m, nil
}

func (m *member) leave() error {
	m.stop()
	<-m.done
	return m.group.Close()
}

func (m *member) state() (int, []*sarama.ConsumerMessage) {
	m.lock.Lock()
	defer m.lock.Unlock()
	return m.assigned, slices.Clone(m.got)
}

func groupRebalance() error {
	if err := create(groupTopic, 4); err != nil {
		return err
	}
	first, err := join()
	if err != nil {
		return err
	}
	has := func(m *member, n int) func() (bool, error) {
		return func() (bool, error) { assigned, _ := m.state(); return assigned == n, nil }
	}
	if err := Until("all partitions for the first", has(first, 4)); err != nil {
		return err
	}
	second, err := join()
	if err != nil {
		return err
	}
	if err := First(Until("two for the first", has(first, 2)), Until("two for the second", has(second, 2))); err != nil {
		return err
	}
	var messages []*sarama.ProducerMessage
	for n := range 40 {
		messages = append(messages, numbered(n, int32(n%4)))
	}
	if err := produce(groupTopic, config(), messages); err != nil {
		return err
	}
	var values []int
	err = Until("40 records", func() (bool, error) {
		_, a := first.state()
		_, b := second.state()
		values = nil
		for _, m := range append(a, b...) {
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
	if err := First(err, Same(values, expected, "records"), second.leave()); err != nil {
		return err
	}
	return First(Until("all partitions back", has(first, 4)), first.leave())
}

func groupResumes() error {
	if err := produce(groupTopic, config(), []*sarama.ProducerMessage{numbered(40, 1)}); err != nil {
		return err
	}
	err := withAdmin(func(a sarama.ClusterAdmin) error {
		all := map[string][]int32{groupTopic: {0, 1, 2, 3}}
		committed, err := a.ListConsumerGroupOffsets(group, all)
		if err != nil {
			return err
		}
		var offsets []int64
		for p := range int32(4) {
			offsets = append(offsets, committed.GetBlock(groupTopic, p).Offset)
		}
		return Same(offsets, []int64{10, 10, 10, 10}, "committed offsets")
	})
	if err != nil {
		return err
	}
	m, err := join()
	if err != nil {
		return err
	}
	var got []*sarama.ConsumerMessage
	err = Until("the new record", func() (bool, error) { _, got = m.state(); return len(got) > 0, nil })
	if err != nil {
		return err
	}
	text := fmt.Sprintf("%d@%d=%s", got[0].Partition, got[0].Offset, got[0].Value)
	return First(Same(text, "1@10=40", "record"), m.leave())
}

func offsetsByTime() error {
	where := prefix + "-time"
	var messages []*sarama.ProducerMessage
	for n := range 10 {
		m := numbered(n, 0)
		m.Timestamp = Epoch.Add(time.Duration(n) * Step)
		messages = append(messages, m)
	}
	if err := First(create(where, 1), produce(where, config(), messages)); err != nil {
		return err
	}
	client, err := sarama.NewClient(addresses, config())
	if err != nil {
		return err
	}
	defer client.Close()
	third := Epoch.Add(3 * Step).UnixMilli()
	asked := []int64{Epoch.UnixMilli(), third, third + 1, Epoch.Add(10 * Step).UnixMilli(), sarama.OffsetOldest, sarama.OffsetNewest}
	var got []int64
	for _, t := range asked {
		offset, err := client.GetOffset(where, 0, t)
		if err != nil {
			return err
		}
		got = append(got, offset)
	}
	if err := Same(got, []int64{0, 3, 4, -1, 0, 10}, "offsets by time"); err != nil {
		return err
	}
	found, err := read(where, 1, 7)
	if err != nil {
		return err
	}
	stamp := Epoch.Add(7 * Step).UnixMilli()
	return Same([]int64{found[0].Offset, found[0].Timestamp.UnixMilli()}, []int64{7, stamp}, "record at offset 7")
}

func groupsListed() error {
	return withAdmin(func(a sarama.ClusterAdmin) error {
		groups, err := a.ListConsumerGroups()
		if err != nil {
			return err
		}
		if _, listed := groups[group]; !listed {
			return fmt.Errorf("%s isn't listed", group)
		}
		described, err := a.DescribeConsumerGroups([]string{group})
		if err != nil {
			return err
		}
		text := fmt.Sprintf("%s %d", described[0].State, len(described[0].Members))
		return Same(text, "Empty 0", "state and members")
	})
}

func deleteTopic() error {
	return withAdmin(func(a sarama.ClusterAdmin) error {
		if err := a.DeleteTopic(topic); err != nil {
			return err
		}
		return Until("the topic is gone", func() (bool, error) {
			topics, err := a.ListTopics()
			_, there := topics[topic]
			return !there, err
		})
	})
}

func main() {
	harness.Run([]Case{
		{"create-topic", createTopic},
		codec("none", sarama.CompressionNone),
		codec("gzip", sarama.CompressionGZIP),
		codec("snappy", sarama.CompressionSnappy),
		codec("lz4", sarama.CompressionLZ4),
		codec("zstd", sarama.CompressionZSTD),
		{"idempotent", idempotent},
		{"transactions", transactions},
		{"transaction-offsets", transactionOffsets},
		{"compaction", compaction},
		{"group-rebalance", groupRebalance},
		{"group-resumes", groupResumes},
		{"group-kip848", func() error { return Skip("sarama speaks the classic protocol only") }},
		{"group-migration", func() error { return Skip("sarama speaks the classic protocol only") }},
		{"group-migration-cooperative", func() error { return Skip("sarama speaks the classic protocol only") }},
		{"share-group", func() error { return Skip("sarama has no share groups") }},
		{"share-dead-letters", func() error { return Skip("sarama has no share groups") }},
		{"offsets-by-time", offsetsByTime},
		{"groups-listed", groupsListed},
		{"delete-topic", deleteTopic},
	})
}
