// One flow after another with RocketMQ's Go client: `flows NAMESRV FLOW...`. What happens is told in lines of JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const limit = 60 * time.Second

type fields map[string]any

var (
	nameServers = primitive.NewPassthroughResolver([]string{os.Args[1]})
	background  = context.Background()
	printing    sync.Mutex
)

func tell(event string, more fields) {
	printing.Lock()
	defer printing.Unlock()
	line := []byte(fmt.Sprintf(`{"event":%q`, event))
	for key, value := range more {
		encoded, _ := json.Marshal(value)
		line = append(line, fmt.Sprintf(`,%q:%s`, key, encoded)...)
	}
	fmt.Println(string(append(line, '}')))
}

func check(err error) {
	if err != nil {
		tell("problem", fields{"problem": err.Error()})
		os.Exit(1)
	}
}

// What one consumer got, in order; each message is told as well.
type taken struct {
	sync.Mutex
	consumer string
	count    int
}

func (t *taken) take(message *primitive.MessageExt) {
	t.Lock()
	defer t.Unlock()
	t.count++
	tell("received", fields{
		"consumer": t.consumer, "body": string(message.Body), "times": message.ReconsumeTimes, "topic": message.Topic,
		"tags": message.GetTags(), "keys": message.GetKeys(), "waited": message.StoreTimestamp - message.BornTimestamp,
	})
}

func (t *taken) await(count int) {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		t.Lock()
		enough := t.count >= count
		t.Unlock()
		if enough {
			return
		}
	}
	tell("problem", fields{"problem": fmt.Sprintf("%s has %d of %d", t.consumer, t.count, count)})
	os.Exit(1)
}

func sender(group string, options ...producer.Option) rocketmq.Producer {
	given := []producer.Option{producer.WithNsResolver(nameServers), producer.WithGroupName(group), producer.WithInstanceName(group)}
	made, err := rocketmq.NewProducer(append(given, options...)...)
	check(err)
	check(made.Start())
	return made
}

func send(by rocketmq.Producer, messages ...*primitive.Message) string {
	result, err := by.SendSync(background, messages...)
	check(err)
	tell("sent", fields{"status": result.Status == primitive.SendOK, "id": result.MsgID})
	return result.MsgID
}

func message(topic, body string) *primitive.Message {
	return primitive.NewMessage(topic, []byte(body)).WithTag("TagA").WithKeys([]string{"key-" + body})
}

type judge func(*primitive.MessageExt) consumer.ConsumeResult

func fine(*primitive.MessageExt) consumer.ConsumeResult { return consumer.ConsumeSuccess }

func reader(name, topic string, selector consumer.MessageSelector, judged judge, options ...consumer.Option) (*taken, rocketmq.PushConsumer) {
	given := []consumer.Option{
		consumer.WithNsResolver(nameServers), consumer.WithGroupName("go-" + name), consumer.WithInstance(name),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	}
	made, err := rocketmq.NewPushConsumer(append(given, options...)...)
	check(err)
	all := &taken{consumer: name}
	check(made.Subscribe(topic, selector, func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, each := range messages {
			all.take(each)
			if result := judged(each); result != consumer.ConsumeSuccess {
				return result, nil
			}
		}
		return consumer.ConsumeSuccess, nil
	}))
	check(made.Start())
	return all, made
}

func sending() {
	by := sender("go-sending")
	send(by, message("GoSending", "alone"))
	send(by, message("GoSending", "batch-0"), message("GoSending", "batch-1"), message("GoSending", "batch-2"))
	answered := make(chan error, 1)
	callback := func(_ context.Context, _ *primitive.SendResult, err error) { answered <- err }
	check(by.SendAsync(background, callback, message("GoSending", "async")))
	check(<-answered)
	check(by.SendOneWay(background, message("GoSending", "oneway")))
	send(by, message("GoSending", strings.Repeat("large", 2000)))
	all, made := reader("sending", "GoSending", consumer.MessageSelector{}, fine)
	all.await(7)
	check(made.Shutdown())
}

func delay() {
	by := sender("go-delay")
	for level, body := range []string{"now", "level-1", "level-2"} {
		send(by, message("GoDelay", body).WithDelayTimeLevel(level))
	}
	all, made := reader("delay", "GoDelay", consumer.MessageSelector{}, fine)
	all.await(3)
	check(made.Shutdown())
}

func retry() {
	by := sender("go-retry")
	send(by, message("GoRetry", "bad"))
	send(by, message("GoRetry", "good"))
	refuse := func(each *primitive.MessageExt) consumer.ConsumeResult {
		if string(each.Body) == "bad" {
			return consumer.ConsumeRetryLater
		}
		return consumer.ConsumeSuccess
	}
	all, made := reader("retry", "GoRetry", consumer.MessageSelector{}, refuse, consumer.WithMaxReconsumeTimes(2))
	all.await(4)
	check(made.Shutdown())
}

func ordered() {
	by := sender("go-ordered", producer.WithQueueSelector(producer.NewHashQueueSelector()))
	for number := 0; number < 5; number++ {
		send(by, message("GoOrdered", fmt.Sprint(number)).WithShardingKey("one"))
	}
	isFirst := true
	suspend := func(each *primitive.MessageExt) consumer.ConsumeResult {
		if string(each.Body) == "2" && isFirst {
			isFirst = false
			return consumer.SuspendCurrentQueueAMoment
		}
		return consumer.ConsumeSuccess
	}
	all, made := reader("ordered", "GoOrdered", consumer.MessageSelector{}, suspend, consumer.WithConsumerOrder(true))
	all.await(6)
	check(made.Shutdown())
}

// A body says how its transaction ends, here and when the broker asks: `unknown-commit`.
type deciding struct{}

func state(word string) primitive.LocalTransactionState {
	switch word {
	case "commit":
		return primitive.CommitMessageState
	case "rollback":
		return primitive.RollbackMessageState
	}
	return primitive.UnknowState
}

func (deciding) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	return state(strings.Split(string(message.Body), "-")[0])
}

func (deciding) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	tell("checked", fields{"body": string(message.Body), "topic": message.Topic, "id": message.TransactionId})
	return state(strings.Split(string(message.Body), "-")[1])
}

func transaction() {
	by, err := rocketmq.NewTransactionProducer(deciding{}, producer.WithNsResolver(nameServers),
		producer.WithGroupName("go-transaction"), producer.WithInstanceName("go-transaction"))
	check(err)
	check(by.Start())
	for _, body := range []string{"commit-x", "rollback-x", "unknown-rollback", "unknown-commit"} {
		result, err := by.SendMessageInTransaction(background, message("GoTransaction", body))
		check(err)
		tell("sent", fields{"status": result.Status == primitive.SendOK, "id": result.MsgID})
	}
	all, made := reader("transaction", "GoTransaction", consumer.MessageSelector{}, fine)
	all.await(2)
	check(made.Shutdown())
}

func sql() {
	by := sender("go-sql")
	for number := 0; number < 10; number++ {
		each := message("GoSql", fmt.Sprint(number))
		each.WithProperty("a", fmt.Sprint(number))
		if number%2 == 0 {
			each.WithProperty("even", "yes")
		}
		send(by, each)
	}
	selector := consumer.MessageSelector{Type: consumer.SQL92, Expression: "a BETWEEN 3 AND 8 AND even IS NOT NULL"}
	all, made := reader("sql", "GoSql", selector, fine)
	all.await(3)
	check(made.Shutdown())
}

func request() {
	by := sender("go-request")
	answering := sender("go-answering")
	send(by, message("GoRequest", "no question"))
	reply := func(each *primitive.MessageExt) consumer.ConsumeResult {
		if each.GetProperty(primitive.PropertyCorrelationID) == "" {
			return consumer.ConsumeSuccess
		}
		body := []byte(strings.ToUpper(string(each.Body)))
		answer, err := consumer.CreateReplyMessage(each, body)
		check(err)
		answer.Body = body // this client forgets it
		_, err = answering.SendSync(background, answer)
		tell("replied", fields{"taken": err == nil})
		return consumer.ConsumeSuccess
	}
	all, made := reader("request", "GoRequest", consumer.MessageSelector{}, reply)
	all.await(1)
	// A broker finds who asked by its heartbeat, which this client sends a second after its start.
	answer, err := by.Request(background, 2*time.Second, message("GoRequest", "tea"))
	for end := time.Now().Add(limit); err != nil && time.Now().Before(end); {
		answer, err = by.Request(background, 2*time.Second, message("GoRequest", "tea"))
	}
	check(err)
	tell("answered", fields{"body": string(answer.Body)})
	check(made.Shutdown())
	_, err = by.Request(background, 2*time.Second, message("GoRequest", "anybody"))
	tell("unanswered", fields{"problem": err.Error()})
}

func trace() {
	traced := &primitive.TraceConfig{Access: primitive.Local, Resolver: nameServers}
	by := sender("go-trace", producer.WithTrace(traced))
	tell("traced", fields{"id": send(by, message("GoTrace", "traced"))})
	all, _ := reader("trace", "GoTrace", consumer.MessageSelector{}, fine, consumer.WithTrace(traced))
	all.await(1) // nobody is shut down: this client throws away what it has not told by then
}

func main() {
	rlog.SetLogLevel("error")
	flows := map[string]func(){
		"sending": sending, "delay": delay, "retry": retry, "ordered": ordered,
		"transaction": transaction, "sql": sql, "request": request, "trace": trace,
	}
	for _, name := range os.Args[2:] {
		flows[name]()
	}
	tell("done", nil)
	_, _ = os.Stdin.Read(make([]byte, 1))
}
