// The main job through types that openapi-typescript made out of the description: `node client.js URL`.

import assert from 'node:assert/strict'
import createClient from 'openapi-fetch'
import type { components, paths } from './v1.js'

const client = createClient<paths>({ baseUrl: process.argv[2] })

type Answer<T> = { data?: T; error?: components['schemas']['Problem']; response: Response }

function good<T>({ data, error, response }: Answer<T>): T {
  assert(data !== undefined, `${response.status}: ${JSON.stringify(error)}`)
  return data
}

const topic = 'typescript'
const created = good(await client.POST('/v1/topics', { body: { name: topic, partitions: 1 } }))
assert.equal(created.partitions, 1)
const again = await client.POST('/v1/topics', { body: { name: topic } })
assert.equal(again.error?.kafka_error?.name, 'TOPIC_ALREADY_EXISTS')

// Sent twice with one key: stored once.
for (const duplicate of [false, true]) {
  // A stream of lines would be answered as text.
  const { results } = good(
    await client.POST('/v1/topics/{topic}/records', {
      params: { path: { topic }, header: { 'Idempotency-Key': 'once' } },
      body: { records: [{ key: 'k', value: 'first' }, { key: 'k', value: null }] },
    }),
  ) as components['schemas']['RecordResults']
  assert.deepEqual(results.map((r) => [r.offset, r.duplicate]), [[0, duplicate], [1, duplicate]])
}

const read = (offset: string, more: object = {}) =>
  client.GET('/v1/topics/{topic}/partitions/{partition}', {
    params: { path: { topic, partition: 0 }, query: { offset, embed: 'utf8', ...more } },
  })
// 204 is the answer for one raw value alone.
const first = good(await read('start')) as components['schemas']['RecordsOut']
assert.deepEqual(first.records?.map((r) => r.value), ['first', null])
const beyond = await read('99')
assert.equal(beyond.error?.status, 416)

// Numbers that JavaScript can't hold come as text where that is asked for.
const text = good(await read('start', { int64: 'string' })) as components['schemas']['RecordsOut']
assert.equal(text.records?.[0]?.offset, '0')

// A member polls, commits within its generation, and is refused outside it.
const group = 'typescript'
const joined = good(
  await client.POST('/v1/groups/{group}/members', { params: { path: { group } }, body: { topics: [topic] } }),
)
const member = joined.member_id
let { cursor, generation } = joined
const seen: unknown[] = []
while (seen.length < 2) {
  const polled = good(
    await client.GET('/v1/groups/{group}/members/{member}/records', {
      params: { path: { group, member }, query: { cursor, wait_ms: 1000, embed: 'utf8' } },
    }),
  )
  cursor = polled.cursor
  generation = polled.generation
  seen.push(...polled.records.map((r) => r.value))
}
assert.deepEqual(seen, ['first', null])
const offsets = [{ topic, partition: 0, offset: 1 }]
const commit = (generation: number) =>
  client.POST('/v1/groups/{group}/offsets', {
    params: { path: { group } },
    body: { generation, member_id: member, offsets },
  })
assert.equal((await commit(generation - 1)).error?.status, 409)
good(await commit(generation))
const lag = good(await client.GET('/v1/groups/{group}/lag', { params: { path: { group } } }))
assert.equal(lag.total, 1)
console.log('typescript: the main job works through generated types')
