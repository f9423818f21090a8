// Sends numbered orders to one topic until SIGTERM, and then prints how many were acknowledged. KafkaJS, idempotent.
//
//   node orders.js BOOTSTRAP TOPIC
'use strict'

const { Kafka, logLevel } = require('kafkajs')

const [servers, topic] = process.argv.slice(2)
let stopped = false
process.on('SIGTERM', () => {
  stopped = true
})

async function main() {
  const kafka = new Kafka({
    clientId: 'kafkajs-orders',
    brokers: servers.split(','),
    logLevel: logLevel.NOTHING,
    retry: { initialRetryTime: 100, maxRetryTime: 500, retries: 100 },
  })
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1, retry: { initialRetryTime: 100, maxRetryTime: 500, retries: 100 } })
  await producer.connect()
  let acknowledged = 0
  while (!stopped) {
    await producer.send({ topic, acks: -1, messages: [{ value: `order ${acknowledged}` }] })
    acknowledged += 1
  }
  await producer.disconnect()
  console.log(`acknowledged ${acknowledged}`)
}

main().catch((error) => {
  console.error(error)
  process.exit(1)
})
