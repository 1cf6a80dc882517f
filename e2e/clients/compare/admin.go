package main

import (
	"fmt"
	"sort"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func versions() {
	r := kmsg.NewPtrApiVersionsRequest()
	r.ClientSoftwareName, r.ClientSoftwareVersion = "compare", "1"
	resp, err := r.RequestWith(ctx, cl)
	if err != nil {
		fmt.Println(err)
		return
	}
	sort.Slice(resp.ApiKeys, func(i, j int) bool { return resp.ApiKeys[i].ApiKey < resp.ApiKeys[j].ApiKey })
	for _, k := range resp.ApiKeys {
		fmt.Printf("api %s(%d) %d-%d\n", kmsg.NameForKey(k.ApiKey), k.ApiKey, k.MinVersion, k.MaxVersion)
	}
	for _, f := range resp.SupportedFeatures {
		fmt.Printf("feature %s %d-%d\n", f.Name, f.MinVersion, f.MaxVersion)
	}
}

func create(name string, parts int32, factor int16, validate bool, cfg ...string) {
	r := kmsg.NewPtrCreateTopicsRequest()
	r.TimeoutMillis, r.ValidateOnly = 5000, validate
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, parts, factor
	for i := 0; i+1 < len(cfg); i += 2 {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = cfg[i], &cfg[i+1]
		t.Configs = append(t.Configs, c)
	}
	r.Topics = append(r.Topics, t)
	resp, err := r.RequestWith(ctx, cl)
	shown := name
	if len(shown) > 30 {
		shown = shown[:30]
	}
	if err == nil {
		for i := range resp.Topics {
			resp.Topics[i].Configs = nil
			if len(resp.Topics[i].Topic) > 30 {
				resp.Topics[i].Topic = "long"
			}
		}
	}
	say(fmt.Sprintf("create %q %d %v %v", shown, parts, validate, cfg), resp, err)
}

func topics() {
	f := int16(*rf)
	long := ""
	for len(long) < 249 {
		long += "x"
	}
	create("cmp-a", 3, f, true)
	create("cmp-a", 3, f, false)
	create("cmp-a", 3, f, false)
	create("cmp-a", 3, f, true)
	for _, n := range []string{"", ".", "..", "a b", "ä", "a/b", long, long + "x", "__x", "cmp.dot", "cmp_dot"} {
		create(n, 1, f, true)
	}
	create("cmp_a.b", 1, f, false)
	create("cmp_a_b", 1, f, false)
	create("cmp.a.b", 1, f, true)
	create("cmp-0", 0, f, true)
	create("cmp-m1", -1, f, true)
	create("cmp-m2", -2, f, true)
	create("cmp-huge", 100000, f, true)
	create("cmp-rf99", 1, 99, true)
	create("cmp-rf0", 1, 0, true)
	create("cmp-c1", 1, f, true, "no.such.config", "1")
	create("cmp-c2", 1, f, true, "retention.ms", "abc")
	create("cmp-c3", 1, f, true, "retention.ms", "-2")
	create("cmp-c4", 1, f, true, "cleanup.policy", "compact")
	create("cmp-c4", 1, f, true, "cleanup.policy", "")
	create("cmp-c5", 1, f, true, "cleanup.policy", "delete,compact")
	create("cmp-c6", 1, f, true, "cleanup.policy", "other")
	create("cmp-c7", 1, f, true, "compression.type", "zstd")
	create("cmp-c8", 1, f, true, "compression.type", "bzip")
	create("cmp-c9", 1, f, true, "segment.bytes", "10")
	create("cmp-c10", 1, f, true, "message.timestamp.type", "LogAppendTime")
	create("cmp-c11", 1, f, true, "max.message.bytes", "-1")
	create("cmp-c12", 1, f, true, "min.insync.replicas", "0")
	create("cmp-c13", 1, f, true, "unclean.leader.election.enable", "yes")
	create("cmp-c14", 1, f, true, "remote.storage.enable", "true")
	create("cmp-c15", 1, f, true, "message.format.version", "2.0")
	create("cmp-c16", 1, f, true, "message.downconversion.enable", "true")
	create("cmp-c17", 1, f, true, "flush.messages", "1")
	create("cmp-c18", 1, f, true, "leader.replication.throttled.replicas", "*")
	create("cmp-c19", 1, f, true, "local.retention.ms", "-2")
	for _, parts := range []int32{3, 2, 4, 0, -1} {
		r := kmsg.NewPtrCreatePartitionsRequest()
		r.TimeoutMillis, r.ValidateOnly = 5000, true
		t := kmsg.NewCreatePartitionsRequestTopic()
		t.Topic, t.Count = "cmp-a", parts
		r.Topics = append(r.Topics, t)
		send(fmt.Sprint("partitions ", parts), r)
	}
	r := kmsg.NewPtrCreatePartitionsRequest()
	r.TimeoutMillis = 5000
	t := kmsg.NewCreatePartitionsRequestTopic()
	t.Topic, t.Count = "cmp-none", 3
	r.Topics = append(r.Topics, t)
	send("partitions unknown", r)
	d := kmsg.NewPtrDeleteTopicsRequest()
	d.TimeoutMillis = 5000
	d.TopicNames = []string{"cmp-none"}
	dt := kmsg.NewDeleteTopicsRequestTopic()
	dt.Topic = p("cmp-none")
	d.Topics = append(d.Topics, dt)
	send("delete unknown", d)
	d.Topics[0].Topic, d.Topics[0].TopicID = nil, [16]byte{1, 2, 3}
	send("delete unknown id", d)
	m := kmsg.NewPtrMetadataRequest()
	m.Topics = []kmsg.MetadataRequestTopic{{Topic: p("cmp-a")}, {Topic: p("cmp-none")}, {Topic: p("a b")}}
	send("metadata", m)
	m.Topics = []kmsg.MetadataRequestTopic{{TopicID: [16]byte{1, 2, 3}}}
	send("metadata unknown id", m)
	m.Topics = []kmsg.MetadataRequestTopic{}
	m.IncludeTopicAuthorizedOperations, m.IncludeClusterAuthorizedOperations = true, true
	send("metadata none", m)
	m.Topics = []kmsg.MetadataRequestTopic{{Topic: p("cmp-a")}}
	send("metadata operations", m)
	dp := kmsg.NewPtrDescribeTopicPartitionsRequest()
	for _, n := range []string{"cmp-a", "cmp-none", "a b"} {
		x := kmsg.NewDescribeTopicPartitionsRequestTopic()
		x.Topic = n
		dp.Topics = append(dp.Topics, x)
	}
	dp.ResponsePartitionLimit = 2
	send("describe partitions", dp)
	dc := kmsg.NewPtrDescribeClusterRequest()
	dc.IncludeClusterAuthorizedOperations = true
	send("describe cluster", dc)
	dc.EndpointType = 2
	send("describe cluster controllers", dc)
	dc.EndpointType = 7
	send("describe cluster endpoint 7", dc)
}

func configs() {
	d := kmsg.NewPtrDescribeConfigsRequest()
	one := func(t kmsg.ConfigResourceType, n string, names ...string) kmsg.DescribeConfigsRequestResource {
		x := kmsg.NewDescribeConfigsRequestResource()
		x.ResourceType, x.ResourceName, x.ConfigNames = t, n, names
		return x
	}
	print := func(name string, resp kmsg.Response) {
		if resp == nil {
			return
		}
		for _, r := range resp.(*kmsg.DescribeConfigsResponse).Resources {
			sort.Slice(r.Configs, func(i, j int) bool { return r.Configs[i].Name < r.Configs[j].Name })
			fmt.Printf("%s %v %q code %d\n", name, r.ResourceType, r.ResourceName, r.ErrorCode)
			for _, c := range r.Configs {
				v := "nil"
				if c.Value != nil {
					v = *c.Value
				}
				syn := ""
				for _, s := range c.ConfigSynonyms {
					sv := "nil"
					if s.Value != nil {
						sv = *s.Value
					}
					syn += fmt.Sprintf(" %s=%s/%v", s.Name, sv, s.Source)
				}
				fmt.Printf("%s %s=%s src %v type %v ro %v sens %v [%s] doc %v\n", name, c.Name, v, c.Source, c.ConfigType, c.ReadOnly, c.IsSensitive, syn, c.Documentation != nil)
			}
		}
	}
	quiet := func(r *kmsg.DescribeConfigsRequest, name string) {
		resp, err := cl.Request(ctx, r)
		if err != nil {
			fmt.Println(name, "ERR", err)
			return
		}
		print(name, resp)
	}
	d.IncludeSynonyms, d.IncludeDocumentation = true, true
	d.Resources = []kmsg.DescribeConfigsRequestResource{one(kmsg.ConfigResourceTypeTopic, "cmp-a")}
	quiet(d, "topic")
	d.Resources = []kmsg.DescribeConfigsRequestResource{one(kmsg.ConfigResourceTypeTopic, "cmp-a", "retention.ms", "nope"), one(kmsg.ConfigResourceTypeTopic, "cmp-none"),
		one(kmsg.ConfigResourceTypeTopic, ""), one(kmsg.ConfigResourceTypeTopic, "a b")}
	quiet(d, "some")
	d.Resources = []kmsg.DescribeConfigsRequestResource{one(kmsg.ConfigResourceTypeBroker, "77")}
	quiet(d, "broker77")
	d.Resources = []kmsg.DescribeConfigsRequestResource{one(kmsg.ConfigResourceTypeBroker, "")}
	quiet(d, "brokerdefault")
	d.Resources = []kmsg.DescribeConfigsRequestResource{one(kmsg.ConfigResourceTypeBroker, "1")}
	quiet(d, "broker")
	for _, t := range []int8{16, 32, 8, 64, 0} {
		d.Resources = []kmsg.DescribeConfigsRequestResource{one(kmsg.ConfigResourceType(t), "g")}
		quiet(d, fmt.Sprint("type", t))
	}
	alter := func(name string, t kmsg.ConfigResourceType, res, key string, op kmsg.IncrementalAlterConfigOp, value *string, validate bool) {
		r := kmsg.NewPtrIncrementalAlterConfigsRequest()
		r.ValidateOnly = validate
		x := kmsg.NewIncrementalAlterConfigsRequestResource()
		x.ResourceType, x.ResourceName = t, res
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Op, c.Value = key, op, value
		x.Configs = append(x.Configs, c)
		r.Resources = append(r.Resources, x)
		send("alter "+name, r)
	}
	T, B := kmsg.ConfigResourceTypeTopic, kmsg.ConfigResourceTypeBroker
	alter("set", T, "cmp-a", "retention.ms", 0, p("1000000"), false)
	alter("set bad", T, "cmp-a", "retention.ms", 0, p("x"), false)
	alter("set null", T, "cmp-a", "retention.ms", 0, nil, false)
	alter("delete", T, "cmp-a", "retention.ms", 1, nil, false)
	alter("append number", T, "cmp-a", "retention.ms", 2, p("1"), false)
	alter("append list", T, "cmp-a", "cleanup.policy", 2, p("compact"), true)
	alter("subtract list", T, "cmp-a", "cleanup.policy", 3, p("compact"), true)
	alter("subtract last", T, "cmp-a", "cleanup.policy", 3, p("delete"), true)
	alter("op 9", T, "cmp-a", "retention.ms", 9, p("1"), false)
	alter("unknown name", T, "cmp-a", "nope", 0, p("1"), false)
	alter("unknown topic", T, "cmp-none", "retention.ms", 0, p("1"), false)
	alter("bad topic", T, "a b", "retention.ms", 0, p("1"), false)
	alter("min insync", T, "cmp-a", "min.insync.replicas", 0, p("9"), true)
	alter("broker default", B, "", "log.retention.ms", 0, p("1000000000"), true)
	alter("broker one", B, "1", "log.cleaner.threads", 0, p("2"), true)
	alter("broker static", B, "1", "log.dirs", 0, p("/x"), true)
	alter("broker 77", B, "77", "log.cleaner.threads", 0, p("2"), true)
	alter("broker word", B, "abc", "log.cleaner.threads", 0, p("2"), true)
	alter("group", 32, "g", "consumer.session.timeout.ms", 0, p("50000"), true)
	alter("metrics", 16, "g", "interval.ms", 0, p("50000"), true)
	alter("type 0", 0, "g", "interval.ms", 0, p("50000"), true)
}
