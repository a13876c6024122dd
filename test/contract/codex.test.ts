/** Requests that Codex really sends, over HTTP and WebSocket: none is refused, at providers of any format. */
import { readFileSync } from 'node:fs'
import t from 'tap'
import { parseEventStream, startGateway } from '../support/gateway.ts'
import { FORMATS, parrotRows, speaking, startParrot } from '../support/provider.ts'
import { openSocket } from '../support/response-socket-client.ts'

interface Sent {
  readonly model: string
  readonly generate?: boolean
  readonly previous_response_id?: string
  readonly input: readonly { readonly type: string }[]
  readonly client_metadata: { readonly session_id: string; readonly thread_id: string }
}

interface Line {
  readonly path?: string
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: Sent
  readonly handshake?: Readonly<Record<string, string>>
  readonly message?: Sent
}

function recorded(name: string): readonly Line[] {
  const text = readFileSync(new URL(`../fixtures/codex/${name}.jsonl`, import.meta.url), 'utf8')
  return text
    .trim()
    .split('\n')
    .map(line => JSON.parse(line) as Line)
}

const parrot = await startParrot(t)
parrot.parts = speaking('The file says hello.')
const gateway = await startGateway(parrotRows(parrot.url))
t.teardown(() => gateway.close())

interface Told {
  readonly id: string
  readonly output: readonly { readonly type: string }[]
}

async function post(body: object, headers: Readonly<Record<string, string>>): Promise<Told> {
  const reply = await fetch(`${gateway.url}/responses`, {
    method: 'POST',
    headers: { ...headers, authorization: `Bearer ${gateway.apiKey}` },
    body: JSON.stringify(body),
  })
  const text = await reply.text()
  if (reply.status !== 200) throw new Error(text)
  const last = parseEventStream(text).at(-1)
  if (last?.type !== 'response.completed') throw new Error(text)
  return last.response
}

async function namesOf(id: string): Promise<readonly unknown[]> {
  const found = await fetch(`${gateway.url}/generation?id=${id}`, {
    headers: { authorization: `Bearer ${gateway.apiKey}` },
  })
  const { data } = (await found.json()) as { data: { session_id: string; agent_id: string } }
  return [data.session_id, data.agent_id]
}

for (const format of FORMATS) {
  const model = `parrot/${format}`

  for (const name of ['http', 'http-additional-tools']) {
    t.test(`${name} at ${format}`, async t => {
      for (const { body, headers } of recorded(name)) {
        if (body === undefined || headers === undefined) throw new Error('no request')
        const asked = parrot.bodies.length
        const { id, output } = await post({ ...body, model }, headers)
        t.same(
          output.map(({ type }) => type),
          ['message'],
        )
        t.equal(parrot.bodies.length, asked + 1)
        const { session_id, thread_id } = body.client_metadata
        t.same(await namesOf(id), [session_id, thread_id])
      }
    })
  }

  for (const name of ['websocket', 'websocket-additional-tools', 'websocket-custom-tools']) {
    t.test(`${name} at ${format}`, async t => {
      const [first, ...messages] = recorded(name)
      const socket = await openSocket(gateway.url, gateway.apiKey, first?.handshake)
      t.teardown(() => socket.close())
      let previous: string | null = null
      for (const { message } of messages) {
        if (message === undefined) throw new Error('no message')
        const asked = parrot.bodies.length
        // The model of the recording called tools, and this one does not: results without calls are what was said.
        const input = message.input.map(item =>
          item.type === 'function_call_output' ? { type: 'message', role: 'user', content: 'done' } : item,
        )
        const events = await socket.ask({
          ...message,
          model,
          input,
          ...(message.previous_response_id === undefined ? {} : { previous_response_id: previous }),
        })
        t.equal(events.at(-1)?.type, 'response.completed', JSON.stringify(events.at(-1)))
        t.equal(parrot.bodies.length - asked, message.generate === false ? 0 : 1)
        previous = (events.at(-1)?.['response'] as Told | undefined)?.id ?? null
      }
      t.match(parrot.bodies.at(-1), /The file says hello/, 'the socket remembers what was said')
    })
  }

  t.test(`compaction at ${format}`, async t => {
    const [asking, going] = recorded('compaction')
    if (asking?.body === undefined || going?.body === undefined) throw new Error('no requests')
    const { output } = await post({ ...asking.body, model }, asking.headers ?? {})
    t.match(output, [{ type: 'compaction' }])
    const [item] = output
    const input = going.body.input.map(each => (each.type === 'compaction' ? item : each))
    t.not(input.indexOf(item as never), -1)
    const next = await post({ ...going.body, input, model }, going.headers ?? {})
    t.match(next.output, [{ type: 'message' }])
    t.match(parrot.bodies.at(-1), /Summary of the conversation/)
  })
}

t.test('none of it was refused', async t => {
  t.same(
    gateway.lines.filter(({ status }) => typeof status === 'number' && status >= 400),
    [],
  )
  t.ok(gateway.lines.filter(({ msg }) => msg === 'exchange').length > 60)
})
