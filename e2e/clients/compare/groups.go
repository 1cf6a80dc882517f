package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func commit(name, group, topic string, part int32, generation int32, member string, meta *string, offset int64) {
	r := kmsg.NewPtrOffsetCommitRequest()
	r.Group, r.Generation, r.MemberID = group, generation, member
	x := kmsg.NewOffsetCommitRequestTopic()
	x.Topic = topic
	y := kmsg.NewOffsetCommitRequestTopicPartition()
	y.Partition, y.Offset, y.Metadata, y.LeaderEpoch = part, offset, meta, -1
	x.Partitions = append(x.Partitions, y)
	r.Topics = append(r.Topics, x)
	send("commit "+name, r)
}

func fetched(name, group string, topics ...string) {
	r := kmsg.NewPtrOffsetFetchRequest()
	r.Group = group
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = group
	for _, t := range topics {
		x := kmsg.NewOffsetFetchRequestTopic()
		x.Topic, x.Partitions = t, []int32{0, 1, 9}
		r.Topics = append(r.Topics, x)
		y := kmsg.NewOffsetFetchRequestGroupTopic()
		y.Topic, y.Partitions = t, []int32{0, 1, 9}
		g.Topics = append(g.Topics, y)
	}
	r.Groups = append(r.Groups, g)
	send("offsets "+name, r)
}

func join(name, group, member string, session int32, kind, protocol string, instance *string) *kmsg.JoinGroupResponse {
	r := kmsg.NewPtrJoinGroupRequest()
	r.Group, r.MemberID, r.SessionTimeoutMillis, r.RebalanceTimeoutMillis, r.ProtocolType, r.InstanceID = group, member, session, 5000, kind, instance
	if protocol != "" {
		x := kmsg.NewJoinGroupRequestProtocol()
		x.Name, x.Metadata = protocol, []byte{0, 1, 0, 0, 0, 1, 0, 5, 'c', 'm', 'p', '-', 'a', 255, 255, 255, 255, 0, 0, 0, 0}
		r.Protocols = append(r.Protocols, x)
	}
	resp := send("join "+name, r)
	if resp == nil {
		return nil
	}
	j := resp.(*kmsg.JoinGroupResponse)
	fmt.Println("  member given", j.MemberID != "", "generation", j.Generation, "leader", j.LeaderID == j.MemberID)
	return j
}

func groups() {
	join("empty group", "", "", 10000, "consumer", "range", nil)
	join("short session", "cmp-g0", "", 10, "consumer", "range", nil)
	join("long session", "cmp-g0", "", 100000000, "consumer", "range", nil)
	join("no protocols", "cmp-g0", "", 10000, "consumer", "", nil)
	join("no type", "cmp-g0", "", 10000, "", "range", nil)
	join("unknown member", "cmp-g0", "nobody", 10000, "consumer", "range", nil)
	join("bad instance", "cmp-g0", "", 10000, "consumer", "range", p("a b"))
	first := join("first", "cmp-g", "", 20000, "consumer", "range", nil)
	if first == nil {
		return
	}
	j := join("second", "cmp-g", first.MemberID, 20000, "consumer", "range", nil)
	if j == nil {
		return
	}
	list := func(name string, states, types []string) {
		r := kmsg.NewPtrListGroupsRequest()
		r.StatesFilter, r.TypesFilter = states, types
		for _, b := range cl.DiscoveredBrokers() {
			resp, err := r.RequestWith(ctx, b)
			if err != nil {
				fmt.Println("list", name, err)
				continue
			}
			for _, g := range resp.Groups {
				if len(g.Group) > 3 && g.Group[:4] == "cmp-" {
					fmt.Printf("list %s %+v\n", name, g)
				}
			}
			if resp.ErrorCode != 0 {
				fmt.Println("list", name, resp.ErrorCode)
			}
		}
	}
	describe := func(name, group string) {
		r := kmsg.NewPtrDescribeGroupsRequest()
		r.Groups, r.IncludeAuthorizedOperations = []string{group}, true
		resp := send("describe "+name, r)
		if resp != nil {
			for _, g := range resp.(*kmsg.DescribeGroupsResponse).Groups {
				fmt.Printf("  error message %v\n", g.ErrorMessage != nil)
			}
		}
	}
	heart := func(name string, generation int32, member string, instance *string) {
		r := kmsg.NewPtrHeartbeatRequest()
		r.Group, r.Generation, r.MemberID, r.InstanceID = "cmp-g", generation, member, instance
		send("heartbeat "+name, r)
	}
	describe("completing", "cmp-g")
	list("completing", nil, nil)
	heart("completing", j.Generation, j.MemberID, nil)
	commit("completing", "cmp-g", "cmp-a", 0, j.Generation, j.MemberID, nil, 1)
	syn := func(name string, generation int32, member string, kind, protocol *string, instance *string) {
		r := kmsg.NewPtrSyncGroupRequest()
		r.Group, r.Generation, r.MemberID, r.ProtocolType, r.Protocol, r.InstanceID = "cmp-g", generation, member, kind, protocol, instance
		x := kmsg.NewSyncGroupRequestGroupAssignment()
		x.MemberID, x.MemberAssignment = member, []byte{0, 1, 0, 0, 0, 1, 0, 5, 'c', 'm', 'p', '-', 'a', 0, 0, 0, 1, 0, 0, 0, 0, 255, 255, 255, 255}
		r.GroupAssignment = append(r.GroupAssignment, x)
		send("sync "+name, r)
	}
	syn("wrong protocol", j.Generation, j.MemberID, p("consumer"), p("other"), nil)
	syn("wrong generation", 99, j.MemberID, p("consumer"), p("range"), nil)
	syn("unknown", j.Generation, "nobody", p("consumer"), p("range"), nil)
	syn("right", j.Generation, j.MemberID, p("consumer"), p("range"), nil)
	syn("again", j.Generation, j.MemberID, p("consumer"), p("range"), nil)
	describe("stable", "cmp-g")
	list("stable", nil, nil)
	list("filter Stable", []string{"stable"}, nil)
	list("filter Empty", []string{"Empty"}, nil)
	list("filter nonsense", []string{"nonsense"}, nil)
	list("type classic", nil, []string{"Classic"})
	list("type consumer", nil, []string{"consumer"})
	list("type nonsense", nil, []string{"nonsense"})
	heart("right", j.Generation, j.MemberID, nil)
	heart("old", j.Generation-1, j.MemberID, nil)
	heart("unknown", j.Generation, "nobody", nil)
	heart("instance", j.Generation, j.MemberID, p("inst"))
	join("wrong type", "cmp-g", "", 10000, "connect", "range", nil)
	join("other protocol", "cmp-g", "", 10000, "consumer", "sticky", nil)
	commit("right", "cmp-g", "cmp-a", 0, j.Generation, j.MemberID, p("meta"), 7)
	commit("old generation", "cmp-g", "cmp-a", 0, j.Generation-1, j.MemberID, nil, 7)
	commit("unknown member", "cmp-g", "cmp-a", 0, j.Generation, "nobody", nil, 7)
	commit("simple while stable", "cmp-g", "cmp-a", 0, -1, "", nil, 7)
	commit("unknown topic", "cmp-g", "cmp-none", 0, j.Generation, j.MemberID, nil, 7)
	commit("unknown partition", "cmp-g", "cmp-a", 9, j.Generation, j.MemberID, nil, 7)
	long := make([]byte, 5000)
	for i := range long {
		long[i] = 'm'
	}
	commit("long metadata", "cmp-g", "cmp-a", 0, j.Generation, j.MemberID, p(string(long)), 8)
	commit("negative offset", "cmp-g", "cmp-a", 1, j.Generation, j.MemberID, nil, -1)
	commit("simple", "cmp-simple", "cmp-a", 0, -1, "", nil, 3)
	commit("simple generation", "cmp-simple2", "cmp-a", 0, 5, "", nil, 3)
	commit("simple member", "cmp-simple2", "cmp-a", 0, -1, "who", nil, 3)
	commit("empty group", "", "cmp-a", 0, -1, "", nil, 3)
	fetched("named", "cmp-g", "cmp-a", "cmp-none")
	fetched("all", "cmp-g")
	fetched("unknown group", "cmp-nobody", "cmp-a")
	fetched("empty group", "", "cmp-a")
	describe("simple", "cmp-simple")
	describe("unknown", "cmp-nobody")
	describe("empty", "")
	del := func(name string, group string) {
		r := kmsg.NewPtrDeleteGroupsRequest()
		r.Groups = []string{group}
		send("delete group "+name, r)
	}
	del("stable", "cmp-g")
	del("unknown", "cmp-nobody")
	del("simple", "cmp-simple")
	del("empty", "")
	od := func(name, group, topic string) {
		r := kmsg.NewPtrOffsetDeleteRequest()
		r.Group = group
		x := kmsg.NewOffsetDeleteRequestTopic()
		x.Topic = topic
		x.Partitions = []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 0}, {Partition: 9}}
		r.Topics = append(r.Topics, x)
		send("offset delete "+name, r)
	}
	od("subscribed", "cmp-g", "cmp-a")
	od("unknown group", "cmp-nobody", "cmp-a")
	od("unknown topic", "cmp-g", "cmp-none")
	leave := func(name, group string, members ...kmsg.LeaveGroupRequestMember) {
		r := kmsg.NewPtrLeaveGroupRequest()
		r.Group, r.Members = group, members
		if len(members) > 0 {
			r.MemberID = members[0].MemberID
		}
		send("leave "+name, r)
	}
	leave("unknown member", "cmp-g", kmsg.LeaveGroupRequestMember{MemberID: "nobody"})
	leave("unknown instance", "cmp-g", kmsg.LeaveGroupRequestMember{InstanceID: p("inst")})
	leave("unknown group", "cmp-nobody", kmsg.LeaveGroupRequestMember{MemberID: "nobody"})
	leave("none", "cmp-g")
	leave("right", "cmp-g", kmsg.LeaveGroupRequestMember{MemberID: j.MemberID})
	describe("left", "cmp-g")
	od("left", "cmp-g", "cmp-a")
	s := join("static", "cmp-st", "", 20000, "consumer", "range", p("one"))
	if s != nil {
		r := join("static again", "cmp-st", "", 20000, "consumer", "range", p("one"))
		if r != nil {
			fmt.Println("  another id", r.MemberID != s.MemberID)
			join("static fenced", "cmp-st", s.MemberID, 20000, "consumer", "range", p("one"))
			leave("static fenced", "cmp-st", kmsg.LeaveGroupRequestMember{MemberID: s.MemberID, InstanceID: p("one")})
			leave("static", "cmp-st", kmsg.LeaveGroupRequestMember{InstanceID: p("one")})
		}
	}
	del("left", "cmp-g")
	fetched("deleted", "cmp-g", "cmp-a")
	for _, k := range []int8{0, 1, 2, 5} {
		for _, key := range []string{"x", "", "g:AAAAAAAAAAAAAAAAAAAAAQ:0"} {
			c := kmsg.NewPtrFindCoordinatorRequest()
			c.CoordinatorKey, c.CoordinatorKeys, c.CoordinatorType = key, []string{key}, k
			limit, end := context.WithTimeout(ctx, 8*time.Second)
			resp, err := cl.DiscoveredBrokers()[0].RetriableRequest(limit, c)
			end()
			say(fmt.Sprintf("find coordinator %d %q", k, key), resp, err)
		}
	}
	_ = kgo.NoResetOffset
}
