/** Streams of Chat Completions and Messages that are read again after each of their frames. */
import t from 'tap'
import { SIM_FORMATS, simModel } from '../../src/apps/simulator/rows.ts'
import { startGateway, type TestGatewayOptions } from '../support/gateway.ts'
import { readPiece } from '../support/resumable.ts'

const ROWS = SIM_FORMATS.flatMap(format => ['write-20-0', 'reason-1'].map(name => simModel(name, format)))
const SLOW = simModel('write-200-5', 'openai-chat')
const gateway = await startGateway({ models: [...ROWS, SLOW] as NonNullable<TestGatewayOptions['models']> })
t.teardown(() => gateway.close())
const { port, apiKey } = gateway
const DOORS = ['/chat/completions', '/messages'] as const
const bodyOf = (model: string) => ({
  model,
  max_tokens: 4000,
  messages: [{ role: 'user', content: 'Where to?' }],
  stream: true,
})

for (const [at, door] of DOORS.entries()) {
  for (const { id: model } of ROWS) {
    t.test(`a stream of POST ${door} is read again after each frame: ${model}`, async t => {
      const headers = { 'x-gateway-resumable': 'true' }
      const whole = await readPiece(door, { port, apiKey, headers, body: bodyOf(model) })
      t.equal(whole.status, 200)
      t.equal(whole.headers['x-gateway-resumable'], 'true')
      t.ok(whole.frames.length > 3)
      const id = String(whole.headers['x-generation-id'])
      const again = (query: string, path: string = door) =>
        readPiece(`${path}/${id}?stream=true${query}`, { port, apiKey })
      t.same((await again('')).frames, whole.frames, 'from the beginning')
      for (let number = 0; number < whole.frames.length; number++) {
        const piece = await again(`&starting_after=${number}`)
        t.equal(piece.status, 200)
        t.same(piece.frames, whole.frames.slice(number + 1), `after ${number}`)
        t.equal(piece.isDone, whole.isDone)
        t.equal(piece.headers['x-generation-id'], id)
      }
      const beyond = await again(`&starting_after=${whole.frames.length}`)
      t.equal(beyond.status, 400)
      t.match(beyond.body, /starting_after: must be at most \d+, the number of the last event/)
      const other = await again('', DOORS[1 - at])
      t.equal(other.status, 404, 'it is read again where it was asked for')
      t.equal((await again('', '/responses')).status, 404)
    })
  }
}

t.test('a client that leaves reads the rest, and another key reads nothing', async t => {
  for (const door of DOORS) {
    const cut = await readPiece(door, {
      port,
      apiKey,
      headers: { 'x-gateway-resumable': 'true' },
      body: bodyOf(SLOW.id),
      cutAfter: 3000,
    })
    const id = String(cut.headers['x-generation-id'])
    const rest = await readPiece(`${door}/${id}?stream=true&starting_after=${cut.frames.length - 1}`, {
      port,
      apiKey,
    })
    t.equal(rest.status, 200)
    t.match(rest.frames.at(-1), door === '/messages' ? /message_stop/ : /"usage":/)
    const all = await readPiece(`${door}/${id}?stream=true`, { port, apiKey })
    t.same([...cut.frames, ...rest.frames], all.frames, 'nothing is missing, and nothing is told twice')
    const stored = await readPiece(`${door}/${id}`, { port, apiKey })
    t.equal(stored.status, 400)
    t.match(stored.body, /stream: must be true: (?:chat completions|messages) are not stored/)
    const unknown = await readPiece(`${door}/gen-1-${'a'.repeat(20)}?stream=true`, { port, apiKey })
    t.equal(unknown.status, 404)
    t.match(unknown.body, door === '/messages' ? /"type":"error"/ : /"not_found/)
  }
})
