/** One connection to a provider: who is told what, and which request may go out once more on another connection. */
import t, { type Test } from 'tap'
import { targetOf } from '../../../../src/providers/upstream/client/connect.ts'
import { Connection, type ConnectionUser } from '../../../../src/providers/upstream/client/connection.ts'
import { ReadTurns } from '../../../../src/providers/upstream/read-turns.ts'
import { type Answer, reply } from '../../../support/fault-server.ts'
import { until } from '../../../support/patience.ts'
import { TestClock } from '../../../support/test-clock.ts'
import { serve } from '../calls.ts'

const REQUEST = 'POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}'

class Notes implements ConnectionUser {
  readonly seen: string[] = []
  again: string | null = null
  text = ''

  onSent(): void {
    this.seen.push('sent')
  }

  onHead({ status }: { readonly status: number }): void {
    this.seen.push(`head ${status}`)
  }

  onBody(bytes: Buffer): void {
    this.text += bytes.toString()
  }

  onDone(): void {
    this.seen.push('done')
  }

  onLost(_error: unknown, again: string | null): void {
    this.again = again
    this.seen.push('lost')
  }

  async ended(): Promise<this> {
    await until('the end of a call', () => ['done', 'lost'].includes(this.seen.at(-1) ?? ''))
    return this
  }
}

async function connect(t: Test, answer: Answer, keepAliveMs = 4_000) {
  const server = await serve(t, answer)
  const clock = new TestClock()
  const pool = { kept: 0, gone: 0 }
  const connection = new Connection(
    {
      target: targetOf(server.url()),
      memory: { session: undefined },
      readTurns: new ReadTurns(),
      keep: () => ++pool.kept > 0,
      forget: () => void pool.gone++,
      track: () => undefined,
    },
    {
      clock,
      keepAliveMs,
      maxAgeMs: 60_000,
      maxHeaderBytes: 16_384,
      maxResponseBytes: 1_000_000,
      ca: undefined,
    },
    Buffer.alloc(65_536),
  )
  t.teardown(() => connection.discard())
  const send = (request = REQUEST): Notes => {
    const notes = new Notes()
    connection.send(request, notes)
    t.same(notes.seen, [], 'nobody is called from inside')
    return notes
  }
  return { server, clock, pool, connection, send }
}

t.test('after a whole reply it is kept, until its time or that of the hint of the server', async t => {
  const hints = ['', 'keep-alive: timeout=3\r\n', 'keep-alive: timeout=600\r\n']
  for (const [hint, expected] of hints.map((text, at) => [text, [4_000, 2_000, 4_000][at]] as const)) {
    const { clock, connection, pool, send } = await connect(t, answering =>
      answering.send(reply(200, '{"a":1}', hint)),
    )
    const notes = await send().ended()
    t.same(notes.seen, ['sent', 'head 200', 'done'], hint)
    t.equal(notes.text, '{"a":1}')
    t.same(pool, { kept: 1, gone: 0 })
    t.equal(connection.expiresMs - clock.monotonicMs(), expected, hint)
  }
})

t.test('a reply that ends with the connection, or has more behind it, is its last', async t => {
  const faults: Readonly<Record<string, Answer>> = {
    closing: answering => answering.send(reply(200, '{}', 'connection: close\r\n')),
    longer: answering => answering.send(`${reply(200, '{}')}HTTP/1.1 200 OK\r\n\r\n`),
  }
  for (const [name, answer] of Object.entries(faults)) {
    const { pool, send } = await connect(t, answer)
    const notes = await send().ended()
    t.equal(notes.again, null, name)
    await until('the end of the connection', () => pool.gone === 1)
    t.equal(pool.kept, 0, name)
  }
})

t.test('a request on a new connection is lost with it', async t => {
  const { send } = await connect(t, answering => answering.end())
  const notes = await send().ended()
  t.same([notes.seen.at(-1), notes.again], ['lost', null])
})

t.test(
  'one that crossed the close of a kept connection may go out again, unless it is long or was answered',
  async t => {
    const long = `${REQUEST.replace('length: 2', 'length: 300002')}${' '.repeat(300_000)}`
    const rows: readonly (readonly [string, string, string, boolean])[] = [
      ['closed at once', REQUEST, '', true],
      ['long', long, '', false],
      ['answered in part', REQUEST, 'HTTP/1.1 200 OK\r\n', false],
    ]
    for (const [name, request, part, isGiven] of rows) {
      let asked = 0
      const { send } = await connect(t, answering => {
        if (++asked === 1) answering.send(reply(200, '{}'))
        else {
          if (part !== '') answering.send(part)
          answering.end()
        }
      })
      await send().ended()
      const notes = await send(request).ended()
      t.same([notes.seen.at(-1), notes.again], ['lost', isGiven ? request : null], name)
    }
  },
)

t.test('a discarded one calls nobody, a closed one tells its user', async t => {
  const { connection, pool, send, server } = await connect(t, () => undefined)
  const silent = send()
  await until('the request', () => server.requests.length === 1)
  connection.discard()
  t.same(silent.seen, ['sent'])
  t.equal(pool.gone, 1)
  const other = await connect(t, () => undefined)
  const told = other.send()
  other.connection.close()
  t.same(told.seen, ['lost'])
})
