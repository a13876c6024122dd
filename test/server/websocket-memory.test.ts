/** The bounds of what sockets remember. */
import t from 'tap'
import {
  type Conversation,
  SOCKET_MEMORY_MAX_BYTES,
  SocketMemories,
} from '../../src/server/websocket-memory.ts'

const MIB = 1024 * 1024

const message = (text: string) => new Uint8Array(Buffer.from(JSON.stringify({ input: text })))
const end = (text: string) =>
  JSON.stringify({ type: 'response.completed', response: { output: [{ type: 'message', content: text }] } })

function memories(limits: { perKey?: number; total?: number } = {}) {
  return new SocketMemories({ perKey: 64 * MIB, total: 256 * MIB, ...limits })
}

const itemsOf = (continued: Conversation | null) =>
  continued?.parts.flatMap(part => JSON.parse(Buffer.from(part).toString()) as unknown[])

t.test('a socket forgets its oldest lanes above 16 MiB, and keeps no response that is larger', async t => {
  const all = memories()
  const memory = all.open('key')
  const long = 'x'.repeat(6 * MIB)
  for (const lane of ['a', 'b', 'c']) memory.remember(lane, lane, null, message(long), end(lane))
  t.equal(memory.continue('a'), null)
  t.ok(memory.continue('b') !== null && memory.continue('c') !== null)
  t.ok(all.bytes <= SOCKET_MEMORY_MAX_BYTES)
  memory.remember('d', 'd', null, message('x'.repeat(17 * MIB)), end('d'))
  t.equal(memory.continue('d'), null)
  t.ok(memory.continue('c') !== null, 'others stay')
  memory.clear()
  t.equal(all.bytes, 0)
})

t.test('a conversation above 16 MiB is not remembered, and its earlier response is gone', async t => {
  const memory = memories().open('key')
  const long = 'x'.repeat(9 * MIB)
  memory.remember('a', '', null, message(long), end('a'))
  const before = memory.continue('a')
  memory.remember('b', '', before, message(long), end('b'))
  t.equal(memory.continue('a'), null)
  t.equal(memory.continue('b'), null)
})

t.test('lanes without end are no way around the bound', async t => {
  const all = memories()
  const memory = all.open('key')
  for (let lane = 0; lane < 1_000; lane++) memory.remember(`${lane}`, `${lane}`, null, message(''), end(''))
  t.equal(memory.continue('900'), null)
  t.ok(memory.continue('999') !== null && memory.continue('936') !== null)
  t.equal(memory.continue('935'), null)
})

t.test("under pressure a key's own oldest response goes, of whichever socket", async t => {
  const all = memories({ perKey: 3 * MIB })
  const [first, second] = [all.open('key'), all.open('key')]
  const other = all.open('other')
  const part = message('x'.repeat(MIB))
  other.remember('o', '', null, part, end('o'))
  first.remember('a', '', null, part, end('a'))
  second.remember('b', '', null, part, end('b'))
  second.remember('c', 'c', null, part, end('c'))
  t.equal(first.continue('a'), null)
  t.ok(second.continue('b') !== null && second.continue('c') !== null && other.continue('o') !== null)
})

t.test('when the thread has no room, the key that holds most makes some', async t => {
  const all = memories({ total: 4 * MIB })
  const [much, little] = [all.open('much'), all.open('little')]
  const part = message('x'.repeat(MIB))
  for (const lane of ['a', 'b', 'c']) much.remember(lane, lane, null, part, end(lane))
  little.remember('l', '', null, part, end('l'))
  t.ok(little.continue('l') !== null)
  t.equal(much.continue('a'), null)
  t.ok(much.continue('b') !== null && all.bytes <= 4 * MIB)
})

t.test(
  'a conversation is its items in their order; what a response names stays after others went',
  async t => {
    const memory = memories().open('key')
    memory.remember('a', '', null, message('one'), end('two'))
    const first = memory.continue('a')
    memory.remember('b', '', first, message('three'), end('four'))
    t.match(itemsOf(memory.continue('b')), [
      { role: 'user', content: 'one' },
      { content: 'two' },
      { role: 'user', content: 'three' },
      { content: 'four' },
    ])
    t.equal(memory.continue('a'), null, 'only the last response of a lane')
    memory.forget('b')
    t.equal(memory.continue('b'), null)
  },
)
