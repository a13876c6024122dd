/** Recorded traffic of clients, replayed against this gateway, and against one that spoils its answers. */
import { createServer, request as httpRequest } from 'node:http'
import t, { type Test } from 'tap'
import { waitingClock } from '../../../src/apps/commands/waiting-clock.ts'
import { CLIENT_NAMES, type ProvedClientName } from '../../../src/apps/prove/clients/names.ts'
import { FaultProvider, prove } from '../../../src/apps/prove/prove.ts'
import type { ProveReport } from '../../../src/apps/prove/report.ts'
import { startGateway, type TestGateway } from '../../support/gateway.ts'
import { listening } from '../../support/listening.ts'
import { proveOptions } from './options.ts'

interface Seen {
  readonly status: number
  readonly text: string
}

type Spoil = (seen: Seen, path: string) => Seen

const FORMATS = ['openai-chat', 'openai-responses'] as const
const provider = new FaultProvider(waitingClock)
await provider.listen(0)
const gateway: TestGateway = await startGateway({
  providers: FORMATS.map(format => ({ slug: format, format, baseUrl: provider.url, apiKey: 'provider-key' })),
  models: FORMATS.map(format => ({
    id: `proved/${format}`,
    endpoints: [{ provider: format, upstreamModel: 'proved' }],
  })) as never,
})
t.teardown(async () => {
  await gateway.close()
  await provider.close()
})

async function proven(client: ProvedClientName, url: string, format: string): Promise<ProveReport> {
  const report = await prove(
    proveOptions({
      url,
      key: gateway.apiKey,
      model: `proved/${format}`,
      limits: { requests: 100, concurrency: 4, seconds: 600 },
      provider,
      client,
    }),
    { begins: () => undefined, onResult: () => undefined },
  )
  return report
}

/** Hands everything on to the gateway, and spoils what comes back. @returns its address */
async function spoiling(t: Test, spoil: Spoil): Promise<string> {
  const server = createServer((request, response) => {
    const { method, url: path = '', headers } = request
    const upstream = httpRequest({ host: '127.0.0.1', port: gateway.port, method, path, headers }, reply => {
      const chunks: Buffer[] = []
      reply.on('data', chunk => chunks.push(chunk))
      reply.on('end', () => {
        const text = Buffer.concat(chunks).toString()
        const spoilt = spoil({ status: reply.statusCode ?? 0, text }, path)
        response.writeHead(spoilt.status, { 'content-type': reply.headers['content-type'] ?? 'text/plain' })
        response.end(spoilt.text)
      })
    })
    request.pipe(upstream)
  })
  const { port } = await listening(server, t)
  return `http://127.0.0.1:${port}/v1`
}

const IDS = ['accepted', 'stream', 'calls', 'usage', 'unknown-model', 'wrong-key'].map(id => `client.${id}`)

for (const client of CLIENT_NAMES) {
  for (const format of FORMATS) {
    t.test(`${client} works at this gateway in front of ${format}`, async t => {
      const { checks, ...report } = await proven(client, gateway.url, format)
      t.same(
        checks.map(({ id, status, seen }) => [id, status === 'pass' ? status : `${status}: ${seen}`]),
        IDS.map(id => [id, 'pass']),
      )
      t.match(report.client, /^\w.* \d+\.\d+\.\d+$/)
      t.same(report.dialects, [])
    })
  }
}

const texts =
  (from: RegExp | string, to: string): Spoil =>
  ({ status, text }) => ({ status, text: text.replaceAll(from, to) })
const refused =
  (status: number): Spoil =>
  seen => ({ ...seen, status: seen.status === 200 ? status : seen.status })
/** Frames whose text has this in it go. */
const without =
  (mark: string): Spoil =>
  ({ status, text }) => ({
    status,
    text: text
      .split(/(?<=\r?\n\r?\n)/)
      .filter(frame => !frame.includes(mark))
      .join(''),
  })
const error =
  (of: number, text: string): Spoil =>
  seen =>
    seen.status === of ? { status: of, text } : seen

const PLANTED: readonly (readonly [ProvedClientName, string, Spoil, string])[] = [
  ['claude-code', 'tools are refused', refused(400), 'client.accepted'],
  ['claude-code', 'the last event is missing', without('message_stop'), 'client.stream'],
  ['claude-code', 'events have no names', texts(/^event: .*\n/gm, ''), 'client.stream'],
  ['claude-code', 'blocks stay open', without('content_block_stop'), 'client.stream'],
  [
    'claude-code',
    'a tool has another name',
    texts(/"tool_use",("id":"[^"]*",)"name":"/g, '"tool_use",$1"name":"x'),
    'client.calls',
  ],
  ['claude-code', 'usage is lost', texts('"output_tokens"', '"tokens"'), 'client.usage'],
  ['claude-code', "errors are OpenAI's", texts('"type":"error"', '"object":"error"'), 'client.unknown-model'],
  ['claude-code', 'a wrong key is 500', error(401, '{}'), 'client.wrong-key'],
  ['codex', 'there is no end', without('response.completed'), 'client.stream'],
  ['codex', 'items are not told whole', without('response.output_item.done'), 'client.stream'],
  ['codex', 'the namespace is lost', texts(/"namespace":"[^"]*",?/g, ''), 'client.calls'],
  ['codex', 'usage is lost', texts('"input_tokens"', '"tokens"'), 'client.usage'],
  ['codex', 'namespaces are refused', refused(422), 'client.accepted'],
  ['gemini-cli', 'the door is missing', refused(404), 'client.accepted'],
  [
    'gemini-cli',
    'a stream ends in [DONE]',
    seen => ({ ...seen, text: `${seen.text}data: [DONE]\n\n` }),
    'client.stream',
  ],
  ['gemini-cli', 'nothing is finished', texts('"finishReason"', '"reason"'), 'client.stream'],
  ['gemini-cli', 'a tool has another name', texts('"name":"', '"name":"x'), 'client.calls'],
  ['gemini-cli', 'errors have no status', texts('"status"', '"state"'), 'client.unknown-model'],
  ['opencode', 'nothing is finished', texts('"finish_reason"', '"reason"'), 'client.stream'],
  ['opencode', 'calls have no index', texts(/("tool_calls":\[\{)"index":\d+,/g, '$1'), 'client.stream'],
  ['opencode', 'usage is lost', texts('"prompt_tokens"', '"tokens"'), 'client.usage'],
  ['opencode', 'errors are texts', error(401, 'no'), 'client.wrong-key'],
]

for (const [client, fault, spoil, id] of PLANTED) {
  t.test(`${client}: ${fault} is found`, async t => {
    const url = await spoiling(t, spoil)
    const { checks } = await proven(client, url, 'openai-chat')
    const found = checks.filter(({ status }) => status === 'fail').map(each => each.id)
    t.ok(found.includes(id), `${id} is among ${found.join(', ') || 'none'}`)
  })
}
