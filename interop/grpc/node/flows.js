// What RocketMQ's Node client does over gRPC; each claim that held or did not is a line of JSON.
const { Producer, SimpleConsumer, FilterExpression } = require('rocketmq-client-nodejs');

const endpoints = process.argv[2];
const common = { endpoints, namespace: '', requestTimeout: 10000 };

async function producer(...topics) {
  const made = new Producer({ ...common, topics });
  await made.startup();
  return made;
}

async function consumer(consumerGroup, topic, filter = '*') {
  const made = new SimpleConsumer({ ...common, consumerGroup, awaitDuration: 10000, subscriptions: new Map().set(topic, filter) });
  await made.startup();
  return made;
}

async function drain(receiver, count, limitMs) {
  const found = [];
  const until = Date.now() + limitMs;
  while (found.length < count && Date.now() < until) {
    for (const each of await receiver.receive(16, 20000)) {
      found.push(each.body.toString());
      await receiver.ack(each);
    }
  }
  return found;
}

async function simple() {
  const sender = await producer('NNormal');
  const receiver = await consumer('n-simple', 'NNormal');
  const sent = await sender.send({ topic: 'NNormal', tag: 'A', keys: ['k1'], body: Buffer.from('one'), properties: new Map([['colour', 'red']]) });
  const [first] = await receiver.receive(1, 20000);
  const same = first.messageId === sent.messageId && first.tag === 'A' && first.properties.get('colour') === 'red';
  await receiver.ack(first);
  const began = Date.now();
  setTimeout(() => sender.send({ topic: 'NNormal', body: Buffer.from('wake') }), 500);
  const woken = await drain(receiver, 1, 20000);
  const quick = Date.now() - began < 5000;
  await receiver.shutdown();
  await sender.shutdown();
  return same && quick && woken.join() === 'wake' ? 'ok' : `${same} ${quick} ${woken}`;
}

async function kinds() {
  // One topic each: with several, 1.0.8 waits for ever if its settings come before the route of the last.
  const sender = await producer('NFifo');
  const delayed = await producer('NDelay');
  const ordered = await consumer('n-fifo', 'NFifo');
  const later = await consumer('n-delay', 'NDelay', 'A');
  for (let number = 0; number < 5; number++) {
    await sender.send({ topic: 'NFifo', messageGroup: 'g', body: Buffer.from(`g.${number}`) });
  }
  const due = new Date(Date.now() + 4000);
  await delayed.send({ topic: 'NDelay', tag: 'A', deliveryTimestamp: due, body: Buffer.from('later') });
  await delayed.send({ topic: 'NDelay', tag: 'B', deliveryTimestamp: due, body: Buffer.from('unwanted') });
  const inOrder = await drain(ordered, 5, 30000);
  const after = await drain(later, 1, 30000);
  const late = Date.now() >= due.getTime();
  for (const each of [ordered, later, sender, delayed]) await each.shutdown();
  return inOrder.join() === 'g.0,g.1,g.2,g.3,g.4' && after.join() === 'later' && late ? 'ok' : `${inOrder} ${after} ${late}`;
}

async function transactions() {
  const sender = new Producer({ ...common, topics: ['NTransaction'], checker: { check: async () => 1 } });
  await sender.startup();
  const receiver = await consumer('n-transaction', 'NTransaction');
  for (const body of ['kept', 'dropped']) {
    const transaction = sender.beginTransaction();
    await sender.send({ topic: 'NTransaction', body: Buffer.from(body) }, transaction);
    await (body === 'kept' ? transaction.commit() : transaction.rollback());
  }
  const found = await drain(receiver, 1, 30000);
  await receiver.shutdown();
  await sender.shutdown();
  return found.join() === 'kept' ? 'ok' : `${found}`;
}

async function refusals() {
  const sender = await producer('NNormal');
  const found = [];
  for (const wrong of [{ topic: 'NNormal', messageGroup: 'g' }, { topic: 'NMissing' }]) {
    try {
      await sender.send({ ...wrong, body: Buffer.from('x') });
      found.push('nothing');
    } catch {
      found.push('refused');
    }
  }
  await sender.shutdown();
  return found.join() === 'refused,refused' ? 'ok' : `${found}`;
}

async function main() {
  for (const [name, flow] of Object.entries({ simple, 'order, delay and tags': kinds, transactions, refusals })) {
    let found;
    try {
      found = await flow();
    } catch (problem) {
      console.error(problem);
      found = String(problem);
    }
    console.log(JSON.stringify({ event: 'claim', name, found }));
  }
  console.log(JSON.stringify({ event: 'done' }));
  process.exit(0);
}

main();
