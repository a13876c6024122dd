/** POST /chat/completions to a provider that speaks the same: chunks are relayed, and read as ours all the same. */
import { createServer } from 'node:http'
import t, { type Test } from 'tap'
import { startGateway } from '../support/gateway.ts'
import { listening } from '../support/listening.ts'

const WORDS = Array.from({ length: 40 }, (_, n) => `wort${n} `)

/** A provider that escapes all letters that are not ASCII, which no writer of ours does. */
async function startProvider(t: Test): Promise<string> {
  const chunk = (delta: string, finish: string) =>
    `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"up","choices":[{"index":0,"delta":{${delta}},"finish_reason":${finish}}]}\n\n`
  const server = createServer((request, response) => {
    request.resume()
    request.on('end', () => {
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      for (const word of WORDS) response.write(chunk(`"content":"\\u00e9${word}"`, 'null'))
      response.write(chunk('', '"stop"'))
      response.end('data: [DONE]\n\n')
    })
  })
  return (await listening(server, t)).url
}

t.test('chunks of the provider are relayed under our id, model and time', async t => {
  const baseUrl = await startProvider(t)
  const pricing = { prompt: '0', completion: '0' }
  const gateway = await startGateway({
    providers: [{ slug: 'same', name: 'Same', format: 'openai-chat', baseUrl, apiKey: 'k' }],
    models: [
      {
        id: 'same/speaks',
        name: 'Speaks',
        contextLength: 1000,
        endpoints: [{ provider: 'same', upstreamModel: 'up', pricing }],
      },
    ],
  })
  t.teardown(() => gateway.close())
  const answer = await fetch(`${gateway.url}/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'same/speaks', stream: true, messages: [{ role: 'user', content: 'hi' }] }),
  })
  const text = await answer.text()
  const chunks = text
    .split('\n\n')
    .filter(frame => frame.startsWith('data: {'))
    .map(frame => JSON.parse(frame.slice(6)) as Record<string, unknown>)
  t.ok(text.split('\\u00e9').length - 1 > WORDS.length / 2, 'most chunks keep the escapes of the provider')
  const said = chunks.map(({ choices }) => {
    const [choice] = choices as { delta: { content?: string } }[]
    return choice?.delta.content ?? ''
  })
  t.equal(said.join(''), WORDS.map(word => `é${word}`).join(''))
  for (const member of ['id', 'model', 'created', 'object']) {
    t.equal(new Set(chunks.map(chunk => chunk[member])).size, 1, member)
  }
  t.not(chunks[0]?.['id'], 'chatcmpl-1')
  t.equal(text.split('"role"').length, 2)
})
