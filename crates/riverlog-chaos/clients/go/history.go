package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"hash/crc32"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

type fields map[string]any

// history is the file that riverlog-checker judges, for all goroutines.
type history struct {
	sync.Mutex
	to *bufio.Writer
}

func newHistory(path string) (*history, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	return &history{to: bufio.NewWriterSize(file, 1<<16)}, nil
}

// now is nanoseconds of the clock that all clients of the machine share.
func now() int64 {
	var at unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &at); err != nil {
		panic(err)
	}
	return at.Nano()
}

func (h *history) add(client, op string, more fields) {
	event := fields{"at": now(), "client": client, "op": op}
	for name, value := range more {
		event[name] = value
	}
	line, err := json.Marshal(event)
	if err != nil {
		panic(err)
	}
	h.Lock()
	defer h.Unlock()
	// A write that fails shows in flush.
	h.to.Write(append(line, '\n'))
}

func (h *history) flush() {
	h.Lock()
	defer h.Unlock()
	if err := h.to.Flush(); err != nil {
		panic(err)
	}
}

func (o *options) place(partition int32) []any {
	return []any{o.topic, partition}
}

// bytesOf is a value that shows when a byte of it is another, as in workload.py.
func (o *options) bytesOf(value string) []byte {
	size := int(crc32.ChecksumIEEE([]byte(value))) % o.mostBytes
	tail := bytes.Repeat([]byte(value), size/len(value)+1)[:size]
	return append([]byte(value+" "), tail...)
}

func (o *options) valueOf(data []byte) string {
	name, _, _ := bytes.Cut(data, []byte(" "))
	if bytes.Equal(o.bytesOf(string(name)), data) && len(name) > 0 {
		return string(name)
	}
	return string(name) + " damaged"
}
