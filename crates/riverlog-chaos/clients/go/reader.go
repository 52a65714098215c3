package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// reader is a member of the group that commits what it has got.
type reader struct {
	*clients
	name    string
	client  *kgo.Client
	records atomic.Int64
	// Under the lock: the partitions that it has, and the next offset of each as far as it has come.
	sync.Mutex
	mine              map[int32]bool
	next              map[int32]int64
	stopping, stopped chan struct{}
}

func newReader(r *clients, name string) (*reader, error) {
	c := &reader{
		clients:  r,
		name:     name,
		mine:     map[int32]bool{},
		next:     map[int32]int64{},
		stopping: make(chan struct{}),
		stopped:  make(chan struct{}),
	}
	given := func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
		c.note(partitions, true)
	}
	taken := func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
		c.note(partitions, false)
	}
	r.history.add(name, "open", fields{"group": group, "read_committed": true})
	client, err := kgo.NewClient(append(r.common(),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(r.topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		// A marker shows how far it has come.
		kgo.KeepControlRecords(),
		kgo.FetchMaxWait(100*time.Millisecond),
		kgo.SessionTimeout(6*time.Second),
		kgo.HeartbeatInterval(500*time.Millisecond),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(given),
		kgo.OnPartitionsRevoked(taken),
		kgo.OnPartitionsLost(taken),
	)...)
	c.client = client
	return c, err
}

func (c *reader) note(partitions map[string][]int32, given bool) {
	c.Lock()
	defer c.Unlock()
	for _, partition := range partitions[c.topic] {
		delete(c.next, partition)
		delete(c.mine, partition)
		if given {
			c.mine[partition] = true
		}
	}
	places := [][]any{}
	for partition := range c.mine {
		places = append(places, c.place(partition))
	}
	slices.SortFunc(places, func(a, b []any) int { return int(a[1].(int32) - b[1].(int32)) })
	c.history.add(c.name, "assign", fields{"places": places})
}

// reached is how far it has come in each partition that it has.
func (c *reader) reached() map[int32]int64 {
	committed := c.client.CommittedOffsets()[c.topic]
	c.Lock()
	defer c.Unlock()
	reached := map[int32]int64{}
	for partition := range c.mine {
		reached[partition] = max(c.next[partition], committed[partition].Offset)
	}
	return reached
}

func (c *reader) run() {
	defer close(c.stopped)
	toCommit := map[int32]int64{}
	for polls := 1; c.goesOn(); polls++ {
		since := now()
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		fetched := c.client.PollRecords(ctx, 200)
		cancel()
		records, next := [][]any{}, map[int32]int64{}
		fetched.EachRecord(func(record *kgo.Record) {
			next[record.Partition] = record.Offset + 1
			if !record.Attrs.IsControl() {
				records = append(records, []any{c.place(record.Partition), record.Offset, c.valueOf(record.Value)})
			}
		})
		c.history.add(c.name, "poll", fields{"since": since, "records": records})
		// What it has reached counts once the history says how.
		c.Lock()
		for partition, offset := range next {
			c.next[partition], toCommit[partition] = offset, offset
		}
		for partition := range toCommit {
			if !c.mine[partition] {
				delete(toCommit, partition)
			}
		}
		c.Unlock()
		c.records.Add(int64(len(records)))
		if polls%3 == 0 && len(toCommit) > 0 {
			c.commit(toCommit)
			toCommit = map[int32]int64{}
		}
		c.client.AllowRebalance()
	}
	c.client.CloseAllowingRebalance()
	c.history.add(c.name, "close", nil)
}

func (c *reader) commit(offsets map[int32]int64) {
	wanted := map[string]map[int32]kgo.EpochOffset{c.topic: {}}
	for partition, offset := range offsets {
		wanted[c.topic][partition] = kgo.EpochOffset{Epoch: -1, Offset: offset}
		c.history.add(c.name, "committing", fields{"group": group, "place": c.place(partition), "offset": offset})
	}
	stored := map[int32]bool{}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c.client.CommitOffsetsSync(ctx, wanted, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, answer *kmsg.OffsetCommitResponse, err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, c.name, err)
			return
		}
		for _, topic := range answer.Topics {
			for _, partition := range topic.Partitions {
				stored[partition.Partition] = partition.ErrorCode == 0
			}
		}
	})
	for partition, offset := range offsets {
		c.history.add(c.name, "committed", fields{
			"group": group, "place": c.place(partition), "offset": offset, "stored": stored[partition],
		})
	}
}

func (c *reader) goesOn() bool {
	select {
	case <-c.stopping:
		return false
	default:
		return true
	}
}
