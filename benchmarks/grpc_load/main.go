// A load of gRPC calls as RocketMQ's clients make them: `grpc_load mode=send endpoint=127.0.0.1:8081 pid=1 …`.
//
// Modes: send (calls of one message each), fill (many messages a call, for a backlog), receive (batches of 32, each
// message acknowledged in a call of its own, as clients do), park (receives that wait, woken one by one).
// The answer is one line of JSON; cpu_s is the time of the server's processes meanwhile, load_cpu_s that of this one.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	v2 "github.com/apache/rocketmq-clients/golang/v5/protocol/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

var options = map[string]string{
	"mode": "send", "endpoint": "127.0.0.1:8081", "pid": "", "topic": "Load", "group": "load", "connections": "1",
	"in_flight": "1", "body": "128", "seconds": "3", "warmup": "1", "count": "1000", "broker": "",
}

func number(name string) int {
	value, problem := strconv.Atoi(options[name])
	check(problem)
	return value
}

func seconds(name string) time.Duration {
	value, problem := strconv.ParseFloat(options[name], 64)
	check(problem)
	return time.Duration(value * float64(time.Second))
}

func check(problem error) {
	if problem != nil {
		fmt.Fprintln(os.Stderr, problem)
		os.Exit(1)
	}
}

func checkStatus(what string, status *v2.Status) {
	if status.GetCode() != v2.Code_OK {
		check(fmt.Errorf("%s: %v", what, status))
	}
}

// User and system time of the server's processes, all threads, in seconds.
// cpu is processor time in seconds: of the server's processes, and of this one.
type cpu struct{ server, load float64 }

func spent() cpu {
	own := syscall.Rusage{}
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &own))
	return cpu{serverTime(), float64(own.Utime.Nano()+own.Stime.Nano()) / 1e9}
}

func since(began cpu) cpu {
	now := spent()
	return cpu{now.server - began.server, now.load - began.load}
}

func serverTime() float64 {
	ticks := 0
	for _, pid := range strings.Split(options["pid"], ",") {
		if pid == "" {
			continue
		}
		content, problem := os.ReadFile("/proc/" + pid + "/stat")
		check(problem)
		text := string(content)
		fields := strings.Fields(text[strings.LastIndex(text, ")")+1:])
		for _, field := range fields[11:13] {
			value, problem := strconv.Atoi(field)
			check(problem)
			ticks += value
		}
	}
	return float64(ticks) / 100
}

type client struct {
	id      string
	service v2.MessagingServiceClient
	calls   atomic.Int64
}

func connect(number int) *client {
	connection, problem := grpc.NewClient(options["endpoint"], grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	check(problem)
	id := fmt.Sprintf("load@%d@%d@%s", os.Getpid(), number, strconv.FormatInt(time.Now().UnixNano(), 36))
	return &client{id: id, service: v2.NewMessagingServiceClient(connection)}
}

// The headers of a call; an id and a time of its own in each.
func (c *client) call(limit time.Duration) (context.Context, context.CancelFunc) {
	made, cancel := context.WithTimeout(context.Background(), limit)
	return metadata.AppendToOutgoingContext(made, "x-mq-client-id", c.id, "x-mq-language", "GO", "x-mq-protocol", "v2",
		"x-mq-client-version", "5.1.4", "x-mq-request-id", fmt.Sprintf("%s-%08x", c.id[:8], c.calls.Add(1)),
		"x-mq-namespace", "", "x-mq-date-time", time.Now().UTC().Format("20060102T150405Z")), cancel
}

func resource(name string) *v2.Resource { return &v2.Resource{Name: name} }

// A client says who it is before it asks for anything: the open stream goes on until the program ends.
func (c *client) introduce(settings *v2.Settings) {
	made, _ := c.call(time.Hour)
	stream, problem := c.service.Telemetry(made)
	check(problem)
	check(stream.Send(&v2.TelemetryCommand{Command: &v2.TelemetryCommand_Settings{Settings: settings}}))
	answer, problem := stream.Recv()
	check(problem)
	checkStatus("settings", answer.GetStatus())
	go func() {
		for problem == nil {
			_, problem = stream.Recv()
		}
	}()
}

func agent() *v2.UA {
	return &v2.UA{Language: v2.Language_GOLANG, Version: "5.1.4", Platform: "linux", Hostname: "load"}
}

func (c *client) beProducer() {
	kind := v2.ClientType_PRODUCER
	publishing := &v2.Publishing{Topics: []*v2.Resource{resource(options["topic"])}}
	c.introduce(&v2.Settings{ClientType: &kind, UserAgent: agent(), RequestTimeout: durationpb.New(3 * time.Second),
		PubSub: &v2.Settings_Publishing{Publishing: publishing}})
}

func (c *client) beConsumer() {
	kind := v2.ClientType_SIMPLE_CONSUMER
	entry := &v2.SubscriptionEntry{Topic: resource(options["topic"]), Expression: everything()}
	subscription := &v2.Subscription{Group: resource(options["group"]), Subscriptions: []*v2.SubscriptionEntry{entry}}
	c.introduce(&v2.Settings{ClientType: &kind, UserAgent: agent(), RequestTimeout: durationpb.New(3 * time.Second),
		PubSub: &v2.Settings_Subscription{Subscription: subscription}})
}

func everything() *v2.FilterExpression {
	return &v2.FilterExpression{Type: v2.FilterType_TAG, Expression: "*"}
}

var messages atomic.Int64

func message(body []byte) *v2.Message {
	id := fmt.Sprintf("01%012X%04X%08X%08X", 1, os.Getpid()&0xffff, time.Now().Unix()&0xffffffff, messages.Add(1))
	return &v2.Message{Topic: resource(options["topic"]), Body: body, SystemProperties: &v2.SystemProperties{
		MessageId: id, BodyEncoding: v2.Encoding_IDENTITY, MessageType: v2.MessageType_NORMAL,
		BornTimestamp: timestamppb.Now(), BornHost: "load"}}
}

func (c *client) send(sent ...*v2.Message) {
	made, cancel := c.call(10 * time.Second)
	defer cancel()
	answer, problem := c.service.SendMessage(made, &v2.SendMessageRequest{Messages: sent})
	check(problem)
	checkStatus("send", answer.GetStatus())
}

func (c *client) receive(count int32, wait time.Duration) []*v2.Message {
	made, cancel := c.call(wait + 10*time.Second)
	defer cancel()
	queue := &v2.MessageQueue{Topic: resource(options["topic"]), Id: -1, Broker: &v2.Broker{Name: options["broker"]}}
	stream, problem := c.service.ReceiveMessage(made, &v2.ReceiveMessageRequest{Group: resource(options["group"]),
		MessageQueue: queue, FilterExpression: everything(), BatchSize: count, AutoRenew: false,
		InvisibleDuration: durationpb.New(5 * time.Minute), LongPollingTimeout: durationpb.New(wait)})
	check(problem)
	found := []*v2.Message{}
	for {
		answer, problem := stream.Recv()
		if problem != nil {
			return found
		}
		if status := answer.GetStatus(); status != nil && status.GetCode() != v2.Code_MESSAGE_NOT_FOUND {
			checkStatus("receive", status)
		}
		if message := answer.GetMessage(); message != nil {
			found = append(found, message)
		}
	}
}

func (c *client) ack(received *v2.Message) {
	made, cancel := c.call(10 * time.Second)
	defer cancel()
	system := received.GetSystemProperties()
	entry := &v2.AckMessageEntry{MessageId: system.GetMessageId(), ReceiptHandle: system.GetReceiptHandle()}
	answer, problem := c.service.AckMessage(made, &v2.AckMessageRequest{Group: resource(options["group"]),
		Topic: resource(options["topic"]), Entries: []*v2.AckMessageEntry{entry}})
	check(problem)
	checkStatus("ack", answer.GetStatus())
}

func clients(introduce func(*client)) []*client {
	made := make([]*client, number("connections"))
	for index := range made {
		made[index] = connect(index)
		introduce(made[index])
	}
	return made
}

// Have each of all workers do its work again and again; counted after the warm-up, with the time each took.
func repeat(made []*client, work func(*client) int) (int64, []float64, float64, cpu) {
	var count atomic.Int64
	var over, counting atomic.Bool
	var workers sync.WaitGroup
	var lock sync.Mutex
	all := []float64{}
	for _, each := range made {
		for index := 0; index < number("in_flight"); index++ {
			workers.Add(1)
			go func() {
				defer workers.Done()
				times := []float64{}
				for !over.Load() {
					began := time.Now()
					done := work(each)
					if done < 0 {
						break
					}
					if counting.Load() {
						count.Add(int64(done))
						times = append(times, time.Since(began).Seconds())
					}
				}
				lock.Lock()
				all = append(all, times...)
				lock.Unlock()
			}()
		}
	}
	ended := make(chan bool)
	go func() { workers.Wait(); close(ended) }()
	time.Sleep(seconds("warmup"))
	began, before := time.Now(), spent()
	counting.Store(true)
	select {
	case <-time.After(seconds("seconds")):
	case <-ended:
	}
	counting.Store(false)
	elapsed, used := time.Since(began).Seconds(), since(before)
	done := count.Load()
	over.Store(true)
	<-ended
	return done, all, elapsed, used
}

func tell(count int64, times []float64, elapsed float64, used cpu) {
	sort.Float64s(times)
	at := func(share float64) float64 {
		if len(times) == 0 {
			return 0
		}
		return 1000 * times[int(share*float64(len(times)-1))]
	}
	line, _ := json.Marshal(map[string]float64{"count": float64(count), "seconds": elapsed, "cpu_s": used.server, "load_cpu_s": used.load,
		"p50_ms": at(0.5), "p99_ms": at(0.99), "max_ms": at(1)})
	fmt.Println(string(line))
}

func send() {
	body := []byte(strings.Repeat("x", number("body")))
	tell(repeat(clients((*client).beProducer), func(c *client) int { c.send(message(body)); return 1 }))
}

func fill() {
	body, left := []byte(strings.Repeat("x", number("body"))), number("count")
	sender := clients((*client).beProducer)[0]
	for left > 0 {
		batch := []*v2.Message{}
		for len(batch) < 100 && left > 0 {
			batch = append(batch, message(body))
			left--
		}
		sender.send(batch...)
	}
	fmt.Println("{}")
}

func receive() {
	tell(repeat(clients((*client).beConsumer), func(c *client) int {
		received := c.receive(32, 5*time.Second)
		for _, each := range received {
			c.ack(each)
		}
		if len(received) == 0 {
			return -1
		}
		return len(received)
	}))
}

// Each receive waits with all others; a message wakes one, which acknowledges and waits again.
func park() {
	consumers, woken := clients((*client).beConsumer), make(chan string, number("count"))
	for _, each := range consumers {
		for index := 0; index < number("in_flight"); index++ {
			go func() {
				for {
					for _, received := range each.receive(1, 20*time.Second) {
						woken <- received.GetSystemProperties().GetMessageId()
						each.ack(received)
					}
				}
			}()
		}
	}
	time.Sleep(seconds("warmup"))
	sender := connect(1_000_000)
	sender.beProducer()
	times := []float64{}
	began, before := time.Now(), spent()
	for index := 0; index < number("count"); index++ {
		sent := message([]byte("wake"))
		at := time.Now()
		sender.send(sent)
		if id := <-woken; id != sent.SystemProperties.MessageId {
			check(fmt.Errorf("woken by %s, %s was sent", id, sent.SystemProperties.MessageId))
		}
		times = append(times, time.Since(at).Seconds())
	}
	tell(int64(number("count")), times, time.Since(began).Seconds(), since(before))
}

func main() {
	for _, argument := range os.Args[1:] {
		name, value, isPair := strings.Cut(argument, "=")
		if _, known := options[name]; !isPair || !known {
			check(fmt.Errorf("%q is no option", argument))
		}
		options[name] = value
	}
	modes := map[string]func(){"send": send, "fill": fill, "receive": receive, "park": park}
	if modes[options["mode"]] == nil {
		check(fmt.Errorf("%q is no mode", options["mode"]))
	}
	modes[options["mode"]]()
}
