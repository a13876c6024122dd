/** The requests of Claude Code, as it sent them but for their texts, against providers of every format. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { startGateway } from '../support/gateway.ts'
import { FORMATS, parrotRows, speaking, startParrot } from '../support/provider.ts'

interface Recorded {
  readonly method: string
  readonly path: string
  readonly headers: Readonly<Record<string, string>>
  readonly body: Readonly<Record<string, unknown>> | null
}

const FILE = join(import.meta.dirname, '../fixtures/clients/claude-code.json')
const { requests } = JSON.parse(readFileSync(FILE, 'utf8')) as { readonly requests: readonly Recorded[] }

const parrot = await startParrot(t)
const gateway = await startGateway(parrotRows(parrot.url))
t.teardown(() => gateway.close())

async function replay({ method, path, headers, body }: Recorded, model: string): Promise<Response> {
  return await fetch(`http://127.0.0.1:${gateway.port}${path}`, {
    method,
    headers: { ...headers, authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
    ...(body === null ? {} : { body: JSON.stringify({ ...body, model }) }),
  })
}

for (const format of FORMATS) {
  t.test(`nothing of a whole run is refused over ${format}`, async t => {
    parrot.parts = speaking('Done')
    const lines = gateway.lines.length
    for (const request of requests) {
      const reply = await replay(request, `parrot/${format}`)
      const text = await reply.text()
      t.equal(reply.status, 200, `${request.method} ${request.path} ${text.slice(0, 300)}`)
      if (request.body !== null) t.match(text, /event: message_stop/)
    }
    const routes = gateway.lines.slice(lines).map(({ route, outcome }) => [route, outcome])
    t.same(
      routes,
      requests.filter(({ body }) => body !== null).map(() => ['/messages', 'completed']),
      'its greeting has no line',
    )
  })
}

t.test('a provider of its own API gets the conversation as it was written', async t => {
  for (const request of requests) {
    if (request.body === null) continue
    await (await replay(request, 'parrot/anthropic-messages')).text()
    const sent = JSON.parse(parrot.bodies.at(-1) ?? '') as Readonly<Record<string, unknown>>
    for (const name of ['system', 'thinking', 'output_config', 'context_management'])
      t.equal(JSON.stringify(sent[name]), JSON.stringify(request.body[name]), name)
    const messages = (request.body['messages'] as Message[]).map(inBlocks)
    t.equal(JSON.stringify(sent['messages']), JSON.stringify(messages))
  }
})

interface Message {
  readonly role: string
  readonly content: unknown
}

/** A text alone goes out as the block that it is; the prompt is the same. */
function inBlocks({ role, content }: Message): Message {
  return { role, content: typeof content === 'string' ? [{ type: 'text', text: content }] : content }
}
