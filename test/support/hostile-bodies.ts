/** Hostile and careless bodies that every inference operation gets, whatever its dialect. */
import type { Test } from 'tap'
import type { TestGateway } from './gateway.ts'
import { FORMATS, type Parrot } from './provider.ts'
import { RawClient } from './raw-http.ts'

/** Stands wherever a value may stand; no answer may repeat it. */
export const CANARY = 'canary-7f3a-never-told-0000'

const VALUES: readonly unknown[] = [
  ...[7, -1, 1.5, 1e300, true, false, '', CANARY, null],
  ...[[], [CANARY], [null], [[]], [{}], {}, { [CANARY]: CANARY }, { type: CANARY }],
]

/**
 * Sends every value in every field to the provider of this format, and what it accepts to those of all others: they
 * must be able to express it or refuse it. `probe`: true if it was served.
 */
export async function probeFields(
  own: string,
  fields: readonly string[],
  probe: (format: string, field: string, value: unknown) => Promise<boolean>,
): Promise<void> {
  for (const field of fields) {
    // An answer in events is no document.
    const values = field === 'stream' ? VALUES.filter(value => value !== true) : VALUES
    const served = await Promise.all(
      values.map(async value => ({ value, is: await probe(own, field, value) })),
    )
    await Promise.all(
      FORMATS.filter(format => format !== own).flatMap(format =>
        served.filter(({ is }) => is).map(({ value }) => probe(format, field, value)),
      ),
    )
  }
}

export const LONG_CONVERSATION = Array.from({ length: 5_000 }, (_, at) => ({
  role: at % 2 === 0 ? 'user' : 'assistant',
  content: `message ${at}`,
}))

/** Bodies that are large, deep or no JSON, with the status of their answers. `terms`: what every body needs. */
export function rawBodies(terms: object): readonly (readonly [string | Buffer, number])[] {
  const parts = Array.from({ length: 100_000 }, () => ({ type: 'text', text: CANARY }))
  return [
    [`{"messages":${'['.repeat(100_000)}${']'.repeat(100_000)}}`, 400],
    [JSON.stringify({ ...terms, messages: [{ role: 'user', content: parts }] }), 400],
    [`{"model":"${CANARY}`, 400],
    ['', 400],
    ['null', 400],
    [`["${CANARY}"]`, 400],
    ['{"__proto__":{"x":1},"messages":[]}', 400],
    [Buffer.from([0x7b, 0x22, 0xff, 0xfe, 0x22, 0x7d]), 400],
    [Buffer.alloc(20 * 1024 * 1024 + 1, 0x20), 413],
  ]
}

/** Uploads to this door that break off. Then `post` is served alone, and nothing of what was ever sent is logged. */
export async function breakOff(
  t: Test,
  { gateway, parrot }: { readonly gateway: TestGateway; readonly parrot: Parrot },
  door: { readonly path: string; readonly keyHeader: string; readonly model: string },
  post: () => Promise<Response>,
): Promise<void> {
  const asked = parrot.bodies.length
  for (const body of ['', '{"model":', `{"model":"${door.model}","messages":[`]) {
    const client = new RawClient(gateway.port)
    await client.send(
      `POST /v1${door.path} HTTP/1.1\r\nHost: localhost\r\n${door.keyHeader}${gateway.apiKey}\r\n` +
        `Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n${body}`,
    )
    client.socket.destroy()
  }
  t.equal((await post()).status, 200)
  while (gateway.serving.server.openRequests > 0) await new Promise(resolve => setImmediate(resolve))
  t.equal(parrot.bodies.length, asked + 1)
  // The name of a session is there to be logged.
  const lines = gateway.lines.map(line => ({ ...line, session: undefined }))
  t.notMatch(JSON.stringify(lines), CANARY, 'nothing of what was sent is logged')
  t.same(
    gateway.lines.filter(line => line['msg'] !== 'exchange'),
    [],
  )
}
