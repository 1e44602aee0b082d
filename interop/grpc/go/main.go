// What RocketMQ's Go client does over gRPC; each claim that held or did not is a line of JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
	v2 "github.com/apache/rocketmq-clients/golang/v5/protocol/v2"
)

var endpoint = os.Args[1]

func config(group string) *rmq.Config {
	return &rmq.Config{Endpoint: endpoint, ConsumerGroup: group, Credentials: &credentials.SessionCredentials{}}
}

func check(problem error) {
	if problem != nil {
		panic(problem)
	}
}

func producer(topic string, options ...rmq.ProducerOption) rmq.Producer {
	made, problem := rmq.NewProducer(config(""), append(options, rmq.WithTopics(topic))...)
	check(problem)
	check(made.Start())
	return made
}

func consumer(group string, topic string, filter *rmq.FilterExpression) rmq.SimpleConsumer {
	made, problem := rmq.NewSimpleConsumer(config(group), rmq.WithSimpleAwaitDuration(5*time.Second),
		rmq.WithSimpleSubscriptionExpressions(map[string]*rmq.FilterExpression{topic: filter}))
	check(problem)
	check(made.Start())
	return made
}

func message(topic string, body string) *rmq.Message {
	return &rmq.Message{Topic: topic, Body: []byte(body)}
}

func send(sender rmq.Producer, sent *rmq.Message) *rmq.SendReceipt {
	receipts, problem := sender.Send(context.TODO(), sent)
	check(problem)
	return receipts[0]
}

// An empty receive is an error of this client.
func drain(receiver rmq.SimpleConsumer, count int, limit time.Duration) []string {
	found := []string{}
	until := time.Now().Add(limit)
	for len(found) < count && time.Now().Before(until) {
		views, _ := receiver.Receive(context.TODO(), 16, 20*time.Second)
		for _, view := range views {
			found = append(found, string(view.GetBody()))
			check(receiver.Ack(context.TODO(), view))
		}
	}
	return found
}

func simple() string {
	sender, receiver := producer("GNormal"), consumer("g-simple", "GNormal", rmq.SUB_ALL)
	defer sender.GracefulStop()
	defer receiver.GracefulStop()
	first := message("GNormal", "one")
	first.SetTag("A")
	first.SetKeys("k1", "k2")
	first.AddProperty("colour", "red")
	sent := send(sender, first)
	views, problem := receiver.Receive(context.TODO(), 1, 20*time.Second)
	check(problem)
	view := views[0]
	same := view.GetMessageId() == sent.MessageID && *view.GetTag() == "A" && view.GetProperties()["colour"] == "red"
	check(receiver.ChangeInvisibleDuration(view, 30*time.Second))
	check(receiver.Ack(context.TODO(), view))
	began := time.Now()
	time.AfterFunc(500*time.Millisecond, func() { send(sender, message("GNormal", "wake")) })
	woken := drain(receiver, 1, 20*time.Second)
	if same && len(woken) == 1 && woken[0] == "wake" && time.Since(began) < 4*time.Second {
		return "ok"
	}
	return fmt.Sprint(same, woken, time.Since(began))
}

func kinds() string {
	ordered, later := producer("GFifo"), producer("GDelay")
	defer ordered.GracefulStop()
	defer later.GracefulStop()
	inOrder, delayed := consumer("g-fifo", "GFifo", rmq.SUB_ALL), consumer("g-delay", "GDelay", rmq.SUB_ALL)
	defer inOrder.GracefulStop()
	defer delayed.GracefulStop()
	wanted := []string{}
	for number := 0; number < 5; number++ {
		each := message("GFifo", fmt.Sprint("g.", number))
		each.SetMessageGroup("g")
		send(ordered, each)
		wanted = append(wanted, string(each.Body))
	}
	due := time.Now().Add(4 * time.Second)
	for _, body := range []string{"later", "taken"} {
		each := message("GDelay", body)
		each.SetDelayTimestamp(due)
		receipt := send(later, each)
		if body == "taken" {
			_, problem := later.Recall(context.TODO(), "GDelay", receipt.RecallHandle)
			check(problem)
		}
	}
	got, after := drain(inOrder, 5, 30*time.Second), drain(delayed, 1, 30*time.Second)
	more := drain(delayed, 1, 6*time.Second)
	if strings.Join(got, " ") == strings.Join(wanted, " ") && strings.Join(after, " ") == "later" && len(more) == 0 && !time.Now().Before(due) {
		return "ok"
	}
	return fmt.Sprint(got, after, more)
}

func filters() string {
	sender := producer("GFilter")
	defer sender.GracefulStop()
	tags := consumer("g-tags", "GFilter", rmq.NewFilterExpression("A || C"))
	sql := consumer("g-sql", "GFilter", rmq.NewFilterExpressionWithType("price > 10", rmq.SQL92))
	defer tags.GracefulStop()
	defer sql.GracefulStop()
	for tag, price := range map[string]string{"A": "5", "B": "15", "C": "25"} {
		each := message("GFilter", tag)
		each.SetTag(tag)
		each.AddProperty("price", price)
		send(sender, each)
	}
	byTag, bySql := drain(tags, 2, 30*time.Second), drain(sql, 2, 30*time.Second)
	sort.Strings(byTag)
	sort.Strings(bySql)
	if fmt.Sprint(byTag, bySql) == "[A C] [B C]" {
		return "ok"
	}
	return fmt.Sprint(byTag, bySql)
}

func transactions() string {
	checker := &rmq.TransactionChecker{Check: func(view *rmq.MessageView) rmq.TransactionResolution { return rmq.COMMIT }}
	sender, receiver := producer("GTransaction", rmq.WithTransactionChecker(checker)), consumer("g-transaction", "GTransaction", rmq.SUB_ALL)
	defer sender.GracefulStop()
	defer receiver.GracefulStop()
	for _, body := range []string{"kept", "dropped", "forgotten"} {
		transaction := sender.BeginTransaction()
		_, problem := sender.SendWithTransaction(context.TODO(), message("GTransaction", body), transaction)
		check(problem)
		if body == "kept" {
			check(transaction.Commit())
		} else if body == "dropped" {
			check(transaction.RollBack())
		}
	}
	got := drain(receiver, 2, 60*time.Second)
	sort.Strings(got)
	if fmt.Sprint(got) == "[forgotten kept]" {
		return "ok"
	}
	return fmt.Sprint(got)
}

func refusals() string {
	sender := producer("GNormal")
	defer sender.GracefulStop()
	wrong := message("GNormal", "x")
	wrong.SetMessageGroup("g")
	_, kind := sender.Send(context.TODO(), wrong)
	_, topic := sender.Send(context.TODO(), message("GMissing", "x"))
	status, isStatus := rmq.AsErrRpcStatus(topic)
	if kind != nil && isStatus && status.Code == int32(v2.Code_TOPIC_NOT_FOUND) {
		return "ok"
	}
	return fmt.Sprint(kind, topic)
}

func claim(name string, flow func() string) {
	found := func() (found string) {
		defer func() {
			if problem := recover(); problem != nil {
				found = fmt.Sprint(problem)
			}
		}()
		return flow()
	}()
	line, _ := json.Marshal(map[string]string{"event": "claim", "name": name, "found": found})
	fmt.Println(string(line))
}

func main() {
	rmq.EnableSsl = len(os.Args) < 3 || os.Args[2] != "plain"
	claim("simple", simple)
	claim("order, delay and recall", kinds)
	claim("filters", filters)
	claim("transactions", transactions)
	claim("refusals", refusals)
	fmt.Println(`{"event":"done"}`)
}
