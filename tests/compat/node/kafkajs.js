// The cases with kafkajs; see ../README.md. Codecs other than gzip are packages of their own there.
'use strict'

const { isDeepStrictEqual, inspect } = require('node:util')
const { Kafka, CompressionTypes, CompressionCodecs, logLevel } = require('kafkajs')
const lz4 = require('lz4-napi')
const zstd = require('@bokuweb/zstd-wasm')

const [bootstrap, prefix] = process.argv.slice(2)
if (!prefix) throw new Error('usage: kafkajs.js BOOTSTRAP PREFIX')

CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async (encoder) => lz4.compressFrameSync(encoder.buffer),
  decompress: async (buffer) => lz4.decompressFrameSync(buffer),
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => zstd.init().then(() => Buffer.from(zstd.compress(encoder.buffer))),
  decompress: async (buffer) => zstd.init().then(() => Buffer.from(zstd.decompress(buffer))),
})

const CASE_LIMIT_MS = 20_000
const EPOCH_MS = 1_700_000_000_000
const STEP_MS = 60_000

const kafka = new Kafka({ clientId: 'compat', brokers: bootstrap.split(','), logLevel: logLevel.NOTHING })
const admin = kafka.admin()
const [topic, groupTopic, group] = [`${prefix}-t`, `${prefix}-g`, `${prefix}-group`]

function same(got, expected, what) {
  if (!isDeepStrictEqual(got, expected)) {
    throw new Error(`${what}: expected ${inspect(expected).slice(0, 150)}, got ${inspect(got).slice(0, 150)}`)
  }
}

const sleep = (ms) => new Promise((done) => setTimeout(done, ms))

async function until(what, condition, ms = 15_000) {
  for (const end = Date.now() + ms; Date.now() < end; await sleep(20)) {
    const result = await condition()
    if (result) return result
  }
  throw new Error(`${what}: not within ${ms} ms`)
}

function records() {
  const headers = { trace: Buffer.from([0, 1, 255]), empty: Buffer.alloc(0) }
  const some = Array.from({ length: 50 }, (_, n) => ({
    key: Buffer.from(`key-${n}`),
    value: Buffer.from(`value ${n} `.repeat(20)),
    headers,
  }))
  const gone = { key: Buffer.from('gone'), value: null, headers: {} }
  return [...some, gone, { key: null, value: Buffer.from('no key'), headers: { trace: headers.trace } }]
}

const create = (name, partitions, configEntries = []) =>
  admin.createTopics({ topics: [{ topic: name, numPartitions: partitions, configEntries }], waitForLeaders: true })

async function produce(name, messages, { compression, idempotent = false } = {}) {
  const producer = kafka.producer({ idempotent, maxInFlightRequests: 1 })
  await producer.connect()
  await producer.send({ topic: name, messages, compression, acks: -1 })
  await producer.disconnect()
}

/** The first `count` records from `offset` on; the library reads through a group only. */
async function read(name, count, offset) {
  const found = []
  const consumer = kafka.consumer({ groupId: `${name}-readers`, maxWaitTimeInMs: 100 })
  await consumer.connect()
  await consumer.subscribe({ topic: name, fromBeginning: true })
  await consumer.run({ autoCommit: false, eachMessage: async ({ message }) => void found.push(message) })
  if (offset !== undefined) {
    consumer.seek({ topic: name, partition: 0, offset: String(offset) })
  }
  await until(`${count} records`, () => found.length >= count)
  await consumer.disconnect()
  return found
}

async function createTopic() {
  await create(topic, 3)
  const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
  same(topics[0].partitions.length, 3, 'partitions')
}

const codec = (name, compression) => async () => {
  const where = `${prefix}-${name}`
  await create(where, 1)
  const expected = records()
  await produce(where, expected, { compression })
  const got = (await read(where, expected.length)).map(({ key, value, headers }) => ({ key, value, headers }))
  same(got, expected, 'records')
}

async function idempotent() {
  const where = `${prefix}-idempotent`
  await create(where, 1)
  const producer = kafka.producer({ idempotent: true })
  await producer.connect()
  for (let n = 0; n < 200; n += 10) {
    const messages = Array.from({ length: 10 }, (_, i) => ({ key: 'k', value: String(n + i) }))
    await producer.send({ topic: where, messages, acks: -1 })
  }
  await producer.disconnect()
  const got = (await read(where, 200)).map((m) => [m.offset, m.value.toString()])
  same(got, Array.from({ length: 200 }, (_, n) => [String(n), String(n)]), 'records')
}

async function transactional(name) {
  const producer = kafka.producer({ transactionalId: name, idempotent: true, maxInFlightRequests: 1, transactionTimeout: 10_000 })
  await producer.connect()
  return producer
}

async function transactions() {
  const where = `${prefix}-txn`
  await create(where, 1)
  const producer = await transactional(where)
  const expected = []
  for (const [n, kept] of [true, false, true].entries()) {
    const transaction = await producer.transaction()
    const values = [0, 1, 2].map((i) => `${n}-${i}`)
    await transaction.send({ topic: where, messages: values.map((value) => ({ key: 'k', value })) })
    if (kept) {
      await transaction.commit()
      expected.push(...values)
    } else {
      await transaction.abort()
    }
  }
  // A new instance aborts what the old one has open, and fences it.
  const late = await producer.transaction()
  await late.send({ topic: where, messages: [{ key: 'k', value: 'late' }] })
  const newer = await transactional(where)
  const last = await newer.transaction()
  same(await late.commit().then(() => false, () => true), true, 'the old instance is fenced')
  await last.send({ topic: where, messages: [{ key: 'k', value: 'new' }] })
  await last.commit()
  await Promise.all([producer.disconnect(), newer.disconnect()])
  // The library reads what is committed unless told otherwise.
  same((await read(where, 7)).map((m) => m.value.toString()), [...expected, 'new'], 'records')
}

async function transactionOffsets() {
  const [source, target, name] = [`${prefix}-txn-in`, `${prefix}-txn-out`, `${prefix}-txn-group`]
  await create(source, 1)
  await create(target, 1)
  await produce(source, [0, 1, 2, 3].map((n) => ({ key: 'k', value: String(n) })))
  const records = await read(source, 4)
  const producer = await transactional(`${prefix}-txn-copy`)
  const copy = async (at, kept) => {
    const transaction = await producer.transaction()
    const messages = records.slice(at, at + 2).map(({ key, value }) => ({ key, value }))
    await transaction.send({ topic: target, messages })
    const partitions = [{ partition: 0, offset: String(at + 2) }]
    await transaction.sendOffsets({ consumerGroupId: name, topics: [{ topic: source, partitions }] })
    await (kept ? transaction.commit() : transaction.abort())
    const committed = () => admin.fetchOffsets({ groupId: name, topics: [source] })
    return until('the committed offset', () => committed().then((all) => all[0].partitions[0].offset, () => null))
  }
  same(await copy(0, true), '2', 'committed with the transaction')
  same(await copy(2, false), '2', 'not committed by an aborted one')
  same(await copy(2, true), '4', 'committed by the next')
  await producer.disconnect()
  same((await read(target, 4)).map((m) => m.value.toString()), ['0', '1', '2', '3'], 'each record once')
}

async function compaction() {
  const where = `${prefix}-compact`
  const settings = { 'cleanup.policy': 'compact', 'segment.ms': '50', 'min.cleanable.dirty.ratio': '0.01' }
  await create(where, 1, Object.entries(settings).map(([name, value]) => ({ name, value })))
  // One round a segment.
  for (const round of [['a=0', 'b=0', 'c=0'], ['a=1', 'b=1'], ['a=2'], ['c'], ['end=0']]) {
    await produce(where, round.map((text) => ({ key: text.split('=')[0], value: text.split('=')[1] ?? null })))
    await sleep(100)
  }
  const kept = '4:b=1 5:a=2 6:c=null 7:end=0'
  await until('only the newest of each key', async () => {
    const found = (await read(where, 4)).slice(0, 4)
    return found.map((m) => `${m.offset}:${m.key}=${m.value}`).join(' ') === kept
  })
}

async function member(got) {
  const consumer = kafka.consumer({
    groupId: group,
    sessionTimeout: 6000,
    heartbeatInterval: 300,
    rebalanceTimeout: 10_000,
    maxWaitTimeInMs: 100,
  })
  const one = { consumer, partitions: [] }
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    one.partitions = payload.memberAssignment[groupTopic] ?? []
  })
  await consumer.connect()
  await consumer.subscribe({ topic: groupTopic, fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition, message }) => void got.push({ partition, ...message }),
  })
  return one
}

const spread = (members, ...sizes) => isDeepStrictEqual(members.map((m) => m.partitions.length).sort(), sizes)

async function groupRebalance() {
  await create(groupTopic, 4)
  const got = []
  const first = await member(got)
  await until('all partitions for the first', () => spread([first], 4))
  const second = await member(got)
  await until('two partitions each', () => spread([first, second], 2, 2))
  await produce(groupTopic, Array.from({ length: 40 }, (_, n) => ({ partition: n % 4, key: 'k', value: String(n) })))
  await until('40 records', () => got.length >= 40)
  same(got.map((m) => Number(m.value)).sort((a, b) => a - b), Array.from({ length: 40 }, (_, n) => n), 'records')
  for (const { consumer, partitions } of [first, second]) {
    await consumer.commitOffsets(partitions.map((partition) => ({ topic: groupTopic, partition, offset: '10' })))
  }
  await second.consumer.disconnect()
  await until('all partitions back', () => spread([first], 4))
  await first.consumer.disconnect()
}

async function groupResumes() {
  await produce(groupTopic, [{ partition: 1, key: 'k', value: 'new' }])
  const got = []
  const { consumer } = await member(got)
  await until('the new record', () => got.length > 0)
  same([got[0].partition, got[0].offset, got[0].value.toString()], [1, '10', 'new'], 'record')
  const [committed] = await admin.fetchOffsets({ groupId: group, topics: [groupTopic] })
  same(committed.partitions.map((p) => p.offset), ['10', '10', '10', '10'], 'committed offsets')
  await consumer.disconnect()
}

async function offsetsByTime() {
  const where = `${prefix}-time`
  await create(where, 1)
  const stamp = (n) => String(EPOCH_MS + n * STEP_MS)
  await produce(where, Array.from({ length: 10 }, (_, n) => ({ key: 'k', value: String(n), timestamp: stamp(n) })))
  const got = []
  for (const ms of [EPOCH_MS, EPOCH_MS + 3 * STEP_MS, EPOCH_MS + 3 * STEP_MS + 1]) {
    got.push((await admin.fetchTopicOffsetsByTimestamp(where, ms))[0].offset)
  }
  same(got, ['0', '3', '4'], 'offsets by time')
  const [{ low, high }] = await admin.fetchTopicOffsets(where)
  same([low, high], ['0', '10'], 'first and end offset')
  // What came before the seek took effect isn't asked about.
  const found = (await read(where, 3, 7)).slice(-3).map((m) => [m.offset, m.timestamp])
  same(found, [7, 8, 9].map((n) => [String(n), stamp(n)]), 'records from offset 7')
}

async function groupsListed() {
  const { groups } = await admin.listGroups()
  same(groups.some((g) => g.groupId === group), true, `${group} is listed`)
  const described = (await admin.describeGroups([group])).groups[0]
  same([described.state, described.members], ['Empty', []], 'state and members')
}

async function deleteTopic() {
  await admin.deleteTopics({ topics: [topic] })
  await until('the topic is gone', async () => !(await admin.listTopics()).includes(topic))
}

const cases = [
  ['create-topic', createTopic],
  ['codec-none', codec('none', CompressionTypes.None)],
  ['codec-gzip', codec('gzip', CompressionTypes.GZIP)],
  ['codec-snappy', codec('snappy', CompressionTypes.Snappy)],
  ['codec-lz4', codec('lz4', CompressionTypes.LZ4)],
  ['codec-zstd', codec('zstd', CompressionTypes.ZSTD)],
  ['idempotent', idempotent],
  ['transactions', transactions],
  ['transaction-offsets', transactionOffsets],
  ['compaction', compaction],
  ['group-rebalance', groupRebalance],
  ['group-resumes', groupResumes],
  ['offsets-by-time', offsetsByTime],
  ['groups-listed', groupsListed],
  ['delete-topic', deleteTopic],
]

const skipped = [
  ['group-kip848', 'kafkajs speaks the classic protocol only'],
  ['group-migration', 'kafkajs speaks the classic protocol only'],
  ['group-migration-cooperative', 'kafkajs speaks the classic protocol only'],
  ['share-group', 'kafkajs has no share groups'],
  ['share-dead-letters', 'kafkajs has no share groups'],
]

async function main() {
  for (const [name, reason] of skipped) console.log(`SKIP ${name} ${reason}`)
  await admin.connect()
  for (const [name, run] of cases) {
    const tooLong = sleep(CASE_LIMIT_MS).then(() => Promise.reject(new Error(`not done after ${CASE_LIMIT_MS} ms`)))
    tooLong.catch(() => {})
    try {
      await Promise.race([run(), tooLong])
      console.log(`PASS ${name}`)
    } catch (error) {
      console.log(`FAIL ${name} ${String(error).replace(/\s+/g, ' ').slice(0, 300)}`)
    }
  }
  process.exit(0)
}

main()
