// Sends numbered orders to one topic until SIGTERM with an idempotent producer, one every 20 ms, and prints those that
// are acknowledged. An order that fails is sent again with a new producer. KafkaJS 1.16.0 (old) gives orders that are
// sent while an earlier one has no response yet the sequence number of that one (issue 1005); 2.0.0 (fixed) does not.
//
//   node orders.js old|fixed BOOTSTRAP TOPIC
'use strict'

const [version, servers, topic] = process.argv.slice(2)
const { Kafka, logLevel } = require(`kafkajs-${version}`)
const retry = { initialRetryTime: 100, maxRetryTime: 500, retries: 100 }
const kafka = new Kafka({ clientId: 'kafkajs-orders', brokers: servers.split(','), logLevel: logLevel.NOTHING, retry })
const pauseMs = 20
let stopped = false
let producer = connected()
process.on('SIGTERM', () => {
  stopped = true
})

async function connected() {
  const created = kafka.producer({ idempotent: true, retry })
  await created.connect()
  return created
}

async function send(value) {
  for (;;) {
    const used = producer
    try {
      await (await used).send({ topic, acks: -1, messages: [{ value }] })
      console.log(`acknowledged ${value}`)
      return
    } catch (error) {
      console.error(`${value}: ${error.message}`)
      if (used === producer) producer = connected()
    }
  }
}

async function main() {
  const sends = []
  while (!stopped) {
    sends.push(send(`order ${sends.length}`))
    await new Promise((resolve) => setTimeout(resolve, pauseMs))
  }
  await Promise.all(sends)
  process.exit(0)
}

main()
