// Command compare sends the same requests to two clusters and prints what each answers, one JSON line for each request, for `diff`.
//
// Fields that must differ (ids, places, times) are masked.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var (
	ctx     = context.Background()
	rf      = flag.Int("rf", 1, "replicas")
	cl      *kgo.Client
	seeds   []string
	section = flag.String("only", "", "")
)

var masked = map[string]bool{
	"ThrottleMillis": true, "TopicID": true, "Brokers": true, "ControllerID": true, "ClusterID": true, "Leader": true, "LeaderID": true,
	"Replicas": true, "ISR": true, "Version": true, "UnknownTags": true, "MemberID": true, "Host": true, "Port": true, "NodeID": true,
	"ErrorMessage": true, "OfflineReplicas": true, "Generation": true, "ClientHost": true, "LogStartOffset": false, "Dir": true,
	"ReplicationFactor": true, "AssignedReplicas": true, "Rack": true, "LogAppendTime": true, "SessionID": true, "EligibleLeaderReplicas": true,
	"TotalBytes": true, "UsableBytes": true, "ConfigErrorCode": false,
}

func mask(v any) any {
	switch t := v.(type) {
	case map[string]any:
		for k, x := range t {
			if masked[k] {
				delete(t, k)
			} else {
				t[k] = mask(x)
			}
		}
		return t
	case []any:
		for i := range t {
			t[i] = mask(t[i])
		}
		return t
	}
	return v
}

func say(name string, resp any, err error) {
	if err != nil {
		fmt.Printf("%s ERR %v\n", name, err)
		return
	}
	raw, _ := json.Marshal(resp)
	var v any
	json.Unmarshal(raw, &v)
	out, _ := json.Marshal(mask(v))
	fmt.Printf("%s %s\n", name, out)
}

// send tries one request for ten seconds.
func send(name string, req kmsg.Request) kmsg.Response { return sendTo(cl, name, req) }

func sendTo(c *kgo.Client, name string, req kmsg.Request) kmsg.Response {
	limit, end := context.WithTimeout(ctx, 10*time.Second)
	defer end()
	began := time.Now()
	resp, err := c.Request(limit, req)
	say(name, resp, err)
	if d := time.Since(began); d > 3*time.Second {
		fmt.Printf("%s SLOW\n", name)
	}
	return resp
}

func on(name string) bool { return *section == "" || strings.Contains(","+*section+",", ","+name+",") }

func main() {
	bootstrap := flag.String("bootstrap", "", "")
	flag.Parse()
	seeds = strings.Split(*bootstrap, ",")
	var err error
	cl, err = kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.RetryTimeout(4*time.Second), kgo.AllowAutoTopicCreation())
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	defer cl.Close()
	for _, s := range []struct {
		name string
		run  func()
	}{{"versions", versions}, {"topics", topics}, {"configs", configs}, {"data", data}, {"groups", groups}, {"admin", admin}, {"old", old}, {"data2", data}, {"flow", flow}, {"poison", poison}} {
		if on(s.name) {
			fmt.Println("==", s.name)
			s.run()
		}
	}
}

func p[T any](v T) *T { return &v }
