package main

import (
	"context"
	"fmt"
	"math/rand"
	"os"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// sender is an idempotent producer, or one in transactions.
type sender struct {
	*clients
	name         string
	transactions bool
	client       *kgo.Client
	random       *rand.Rand
	count        int
	acked        atomic.Int64
	pending      atomic.Int64
	failed       atomic.Bool
	// Told to be quiet; with nothing under way.
	quiet, idle       atomic.Bool
	stopping, stopped chan struct{}
}

func newSender(r *clients, name string, transactions bool) (*sender, error) {
	settings := append(r.common(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerLinger(2*time.Millisecond),
		kgo.ProduceRequestTimeout(10*time.Second),
		kgo.MaxBufferedRecords(2_000),
	)
	if transactions {
		settings = append(settings,
			kgo.TransactionalID(r.topic+"-"+name),
			kgo.TransactionTimeout(time.Minute),
			kgo.RecordDeliveryTimeout(50*time.Second),
		)
	} else {
		settings = append(settings, kgo.RecordDeliveryTimeout(5*time.Minute))
	}
	client, err := kgo.NewClient(settings...)
	if err != nil {
		return nil, err
	}
	r.history.add(name, "open", fields{"idempotent": true, "retries": true})
	return &sender{
		clients:      r,
		name:         name,
		transactions: transactions,
		client:       client,
		random:       rand.New(rand.NewSource(r.seed)),
		stopping:     make(chan struct{}),
		stopped:      make(chan struct{}),
	}, nil
}

func (s *sender) send(txn any) {
	value := fmt.Sprintf("%s-%d", s.name, s.count)
	partition := int32(s.random.Intn(s.partitions))
	s.count++
	s.history.add(s.name, "send", fields{"place": s.place(partition), "value": value, "txn": txn})
	s.pending.Add(1)
	record := &kgo.Record{Topic: s.topic, Partition: partition, Value: s.bytesOf(value)}
	s.client.Produce(context.Background(), record, func(told *kgo.Record, err error) {
		if err == nil {
			s.acked.Add(1)
			s.history.add(s.name, "ack", fields{"place": s.place(partition), "value": value, "offset": told.Offset})
		} else {
			s.failed.Store(true)
			fmt.Fprintln(os.Stderr, s.name, value, err)
			s.history.add(s.name, "fail", fields{"value": value, "maybe": true})
		}
		s.pending.Add(-1)
	})
	pause := time.Duration(s.random.ExpFloat64() / s.rate * float64(time.Second))
	time.Sleep(min(pause, 50*time.Millisecond))
}

func (s *sender) goesOn() bool {
	select {
	case <-s.stopping:
		return false
	default:
		return true
	}
}

func (s *sender) run() {
	defer close(s.stopped)
	for number := 0; s.goesOn(); {
		s.idle.Store(s.quiet.Load() && s.pending.Load() == 0)
		if s.quiet.Load() || s.pending.Load() > 1_000 {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		if s.transactions {
			s.transaction(fmt.Sprintf("%s-txn-%d", s.name, number))
			number++
			continue
		}
		for range 1 + s.random.Intn(19) {
			s.send(nil)
		}
	}
	s.client.Close()
	s.history.add(s.name, "close", nil)
}

// transaction begins one and ends it, however often that must be asked for.
func (s *sender) transaction(name string) {
	commit := s.random.Float64() < 0.7
	if err := s.client.BeginTransaction(); err != nil {
		s.stuck(err)
		return
	}
	s.failed.Store(false)
	for range 1 + s.random.Intn(19) {
		s.send(name)
	}
	for s.pending.Load() > 0 {
		time.Sleep(time.Millisecond)
	}
	commit = commit && !s.failed.Load()
	s.history.add(s.name, "ending", fields{"txn": name, "commit": commit})
	err := s.client.EndTransaction(context.Background(), kgo.TransactionEndTry(commit))
	if err == nil {
		s.history.add(s.name, "ended", fields{"txn": name, "committed": commit})
		return
	}
	// The client can't learn any more how this one ended: it asks for an abort, and begins anew.
	s.stuck(err)
	for s.goesOn() {
		if err = s.client.EndTransaction(context.Background(), kgo.TryAbort); err == nil {
			break
		}
		s.stuck(err)
	}
	if !commit {
		s.history.add(s.name, "ended", fields{"txn": name, "committed": false})
	}
}

func (s *sender) stuck(err error) {
	fmt.Fprintln(os.Stderr, s.name, err)
	time.Sleep(100 * time.Millisecond)
}
