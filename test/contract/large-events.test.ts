/** Events of many megabytes, as drawn images and long replies are: a reader that reads gets them whole. */
import { createServer, type ServerResponse } from 'node:http'
import t, { type Test } from 'tap'
import { parseEventStream, startGateway } from '../support/gateway.ts'
import { listening } from '../support/listening.ts'

const MIB = 1024 * 1024

interface Said {
  /** Characters of each image that is drawn. */
  readonly images?: readonly number[]
  /** Characters of the text, in deltas of 64 KiB. */
  readonly text?: number
}

/** A provider that speaks Responses and says this to everyone. */
async function startProvider(t: Test, said: Said): Promise<string> {
  const server = createServer((request, response) => {
    request.resume()
    request.on('end', () => say(response, said))
  })
  return (await listening(server, t)).url
}

function say(response: ServerResponse, { images = [], text = 0 }: Said): void {
  let number = 0
  const send = (type: string, fields: object): void => {
    const data = JSON.stringify({ type, sequence_number: number++, ...fields })
    response.write(`event: ${type}\ndata: ${data}\n\n`)
  }
  const base = { id: 'resp_1', object: 'response', created_at: 1, model: 'draws' }
  const output: object[] = []
  response.writeHead(200, { 'content-type': 'text/event-stream' })
  send('response.created', { response: { ...base, status: 'in_progress', output } })
  for (const [index, size] of images.entries()) {
    const item = {
      type: 'image_generation_call',
      id: `ig_${index}`,
      status: 'completed',
      result: 'i'.repeat(size),
    }
    send('response.output_item.added', {
      output_index: index,
      item: { ...item, status: 'in_progress', result: null },
    })
    send('response.output_item.done', { output_index: index, item })
    output.push(item)
  }
  if (text > 0) output.push(sayText(send, output.length, text))
  const usage = { input_tokens: 7, output_tokens: 5, total_tokens: 12 }
  send('response.completed', { response: { ...base, status: 'completed', output, usage } })
  response.end()
}

function sayText(send: (type: string, fields: object) => void, index: number, length: number): object {
  const piece = 'x'.repeat(64 * 1024)
  const whole = piece.repeat(Math.ceil(length / piece.length))
  const item = { type: 'message', id: 'msg_1', role: 'assistant', status: 'completed' }
  const place = { item_id: 'msg_1', output_index: index, content_index: 0 }
  const part = (said: string) => ({ type: 'output_text', text: said, annotations: [], logprobs: [] })
  send('response.output_item.added', { output_index: index, item: { ...item, content: [] } })
  send('response.content_part.added', { ...place, part: part('') })
  for (let at = 0; at < whole.length; at += piece.length) {
    send('response.output_text.delta', { ...place, delta: piece, logprobs: [] })
  }
  send('response.output_text.done', { ...place, text: whole, logprobs: [] })
  send('response.content_part.done', { ...place, part: part(whole) })
  const done = { ...item, content: [part(whole)] }
  send('response.output_item.done', { output_index: index, item: done })
  return done
}

async function answerOf(t: Test, said: Said) {
  const baseUrl = await startProvider(t, said)
  const gateway = await startGateway({
    providers: [
      { slug: 'painter', name: 'Painter', format: 'openai-responses', baseUrl, apiKey: 'sk-painter' },
    ],
    models: [
      {
        id: 'painter/draws',
        name: 'Draws',
        contextLength: 1_000_000,
        endpoints: [
          { provider: 'painter', upstreamModel: 'draws', pricing: { prompt: '0', completion: '0' } },
        ],
      },
    ],
  })
  t.teardown(() => gateway.close())
  const body = { model: 'painter/draws', input: 'Draw', stream: true, tools: [{ type: 'image_generation' }] }
  const answer = await gateway.respond(body)
  const events = parseEventStream(await answer.text())
  const last = events.at(-1)
  return { events, response: last?.type === 'response.completed' ? last.response : null, gateway }
}

const results = (output: readonly object[]): number[] =>
  output.map(item => ('result' in item ? String(item.result).length : 0))

for (const images of [[8 * MIB], [2 * MIB, 2 * MIB, 2 * MIB], [20 * MIB]]) {
  t.test(`images of ${images.map(size => size / MIB).join(', ')} MiB reach a reader that reads`, async t => {
    const { events, response, gateway } = await answerOf(t, { images })
    const done = events.flatMap(event => (event.type === 'response.output_item.done' ? [event.item] : []))
    t.same(results(done), images)
    t.same(results(response?.output ?? []), images)
    t.equal(gateway.serving.server.load.bufferedBytes, 0)
  })
}

t.test('a text of 3 MiB, which its end says four times, reaches a reader that reads', async t => {
  const { response, gateway } = await answerOf(t, { text: 3 * MIB })
  const [message] = response?.output ?? []
  t.equal(message?.type === 'message' ? message.content.length : 0, 1)
  t.ok(JSON.stringify(message).length > 3 * MIB)
  t.equal(gateway.serving.server.load.bufferedBytes, 0)
})
