// Package harness runs the cases of one client library, a line of output for each; see ../../README.md.
package harness

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"time"
)

const caseLimit = 20 * time.Second

// Epoch is where offsets-by-time begins, Step how far its records lie apart.
var (
	Epoch = time.UnixMilli(1_700_000_000_000)
	Step  = time.Minute
)

// Header of a record.
type Header struct {
	Key   string
	Value []byte
}

// Record as every library can carry it; a nil key or value is null.
type Record struct {
	Key, Value []byte
	Headers    []Header
}

// Compact are the settings of the topic that compaction writes Rounds to, one a segment; Kept is what is left, as At prints it.
var (
	Compact = map[string]string{"cleanup.policy": "compact", "segment.ms": "50", "min.cleanable.dirty.ratio": "0.01"}
	Rounds  = [][]Record{
		{keyed("a", "0"), keyed("b", "0"), keyed("c", "0")},
		{keyed("a", "1"), keyed("b", "1")},
		{keyed("a", "2")},
		{{Key: []byte("c")}},
		{keyed("end", "0")},
	}
	Kept = []string{"4:b=1", "5:a=2", "6:c=null", "7:end=0"}
)

func keyed(key, value string) Record { return Record{Key: []byte(key), Value: []byte(value)} }

// At is a record as Kept has it.
func At(offset int64, key, value []byte) string {
	text := "null"
	if value != nil {
		text = string(value)
	}
	return fmt.Sprintf("%d:%s=%s", offset, key, text)
}

// Case is a named function; what it returns is why it failed.
type Case struct {
	Name string
	Run  func() error
}

// Skip is returned by a case that the library can't do.
type Skip string

func (s Skip) Error() string { return string(s) }

// Arguments are BOOTSTRAP, which may hold several addresses with a comma between, and PREFIX.
func Arguments() (addresses []string, prefix string) {
	if len(os.Args) != 3 {
		fmt.Fprintf(os.Stderr, "usage: %s BOOTSTRAP PREFIX\n", os.Args[0])
		os.Exit(2)
	}
	return strings.Split(os.Args[1], ","), os.Args[2]
}

// Records are compressible ones, one whose value is null and one whose key is null.
func Records() []Record {
	headers := []Header{{"trace", []byte{0, 1, 255}}, {"empty", []byte{}}}
	var some []Record
	for n := range 50 {
		value := strings.Repeat(fmt.Sprintf("value %d ", n), 20)
		some = append(some, Record{fmt.Appendf(nil, "key-%d", n), []byte(value), headers})
	}
	return append(some, Record{Key: []byte("gone")}, Record{Value: []byte("no key"), Headers: headers[:1]})
}

// Same is an error unless got and expected are deeply equal.
func Same(got, expected any, what string) error {
	if reflect.DeepEqual(got, expected) {
		return nil
	}
	return fmt.Errorf("%s: expected %.150s, got %.150s", what, fmt.Sprintf("%+v", expected), fmt.Sprintf("%+v", got))
}

// Until calls condition until it is true, for 15 s at most; what it returns as an error is tried again.
func Until(what string, condition func() (bool, error)) error {
	var last error
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		ok, err := condition()
		if ok && err == nil {
			return nil
		}
		last = err
	}
	return fmt.Errorf("%s: not within 15 s (last error: %v)", what, last)
}

// First is the first error that isn't nil.
func First(errors ...error) error {
	for _, err := range errors {
		if err != nil {
			return err
		}
	}
	return nil
}

// Run reports each case and ends the process, whatever still waits.
func Run(cases []Case) {
	for _, c := range cases {
		done := make(chan error, 1)
		go func() { done <- c.Run() }()
		var err error
		select {
		case err = <-done:
		case <-time.After(caseLimit):
			err = fmt.Errorf("not done after %v", caseLimit)
		}
		switch reason := err.(type) {
		case nil:
			fmt.Println("PASS", c.Name)
		case Skip:
			fmt.Println("SKIP", c.Name, reason)
		default:
			fmt.Printf("FAIL %s %.300s\n", c.Name, strings.Join(strings.Fields(err.Error()), " "))
		}
	}
	os.Exit(0)
}
