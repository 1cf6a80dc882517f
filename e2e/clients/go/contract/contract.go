// Package contract is what every Go client of the matrix shares: the arguments, the steps' names and numbers, and one JSON line for
// each step. ../../README.md says what each step does.
package contract

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"
)

// The numbers that every client shares.
const (
	Partitions = 3
	Records    = 300
	More       = 30
	Retention  = "7654321"
	// Limit is for everything that a step waits for.
	Limit = 45 * time.Second
)

// Refused is the broker's clear word that it does not do this.
type Refused struct{ Said error }

func (r Refused) Error() string { return r.Said.Error() }

// Names are the topics and groups of one run.
type Names struct {
	Bootstrap                             []string
	Data, Admin, Gone, Group, Transaction string
}

// Step does one step and gives what there is to say about it.
type Step func(*Names) (string, error)

// Version gives the version of a module of this program.
func Version(module string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dependency := range info.Deps {
			if dependency.Path == module {
				return module + " " + dependency.Version
			}
		}
	}
	return module
}

// Key of a record.
func Key(number int) string { return fmt.Sprintf("k%d", number%30) }

// Value of a record.
func Value(number int) string { return fmt.Sprintf("v%d", number) }

// CheckOrder fails unless every record is there once, in the order of its partition.
func CheckOrder(found map[int][]string) error {
	for partition := 0; partition < Partitions; partition++ {
		var wanted []string
		for number := partition; number < Records; number += Partitions {
			wanted = append(wanted, Value(number))
		}
		if strings.Join(found[partition], " ") != strings.Join(wanted, " ") {
			return fmt.Errorf("partition %d: %d records, not as they were sent", partition, len(found[partition]))
		}
	}
	return nil
}

// CheckSet fails unless exactly these records were seen.
func CheckSet(seen map[string]bool, first, count int) error {
	for number := first; number < first+count; number++ {
		if !seen[Value(number)] {
			return fmt.Errorf("%s was not read", Value(number))
		}
	}
	if len(seen) != count {
		return fmt.Errorf("%d records, not %d", len(seen), count)
	}
	return nil
}

// Until calls condition until it holds, for Limit. An error means: not yet.
func Until(what string, condition func() (bool, error)) error {
	end := time.Now().Add(Limit)
	for {
		ok, err := condition()
		if ok && err == nil {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("waited %v for %s: %v", Limit, what, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

type line struct {
	Step    string `json:"step"`
	OK      bool   `json:"ok"`
	Detail  string `json:"detail"`
	Absent  bool   `json:"absent,omitempty"`
	Refused bool   `json:"refused,omitempty"`
}

// Run does the steps that were asked for, in order, and ends the program: with 1 if one of them failed.
func Run(steps map[string]Step) {
	bootstrap := flag.String("bootstrap", "", "brokers")
	prefix := flag.String("prefix", "", "of topics and groups")
	wanted := flag.String("steps", "", "names, separated by commas")
	flag.Parse()
	names := &Names{
		Bootstrap: strings.Split(*bootstrap, ","),
		Data:      *prefix + "-data", Admin: *prefix + "-admin", Gone: *prefix + "-gone",
		Group: *prefix + "-group", Transaction: *prefix + "-transaction",
	}
	failed := false
	for _, name := range strings.Split(*wanted, ",") {
		told := line{Step: name}
		if step, there := steps[name]; !there {
			told.Absent, told.Detail = true, "the library has no call for it"
		} else if detail, err := step(names); err == nil {
			told.OK, told.Detail = true, detail
		} else {
			_, told.Refused = err.(Refused)
			told.Detail = err.Error()
			failed = failed || !told.Refused
		}
		text, _ := json.Marshal(told)
		fmt.Println(string(text))
	}
	if failed {
		os.Exit(1)
	}
}
