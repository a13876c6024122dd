/**
 * Cost of one request apart from its deltas: reading the body, validating it, encoding it for the provider, and
 * answering with one JSON document. `npx node bench/micro/request.ts`. Figures are comparable only within one hour on
 * one machine.
 */
import assert from 'node:assert/strict'
import { FORMATS } from '../../src/formats/table.ts'
import { FinalSink } from '../../src/pipeline/answer/sink.ts'
import type { FormatName } from '../../src/protocol/provider.ts'
import { fitRequest } from '../../src/providers/parameters.ts'
import { parseResponsesRequest } from '../../test/support/dialects.ts'
import { scriptedEndpoint, scriptedExchange, startScripted } from '../../test/support/scripted-attempt.ts'

const ROUNDS = 15
const TIMES = 300

const TEXT = 'The quick brown fox jumps over the lazy dog. '

function body(turns: number): object {
  return {
    model: 'acme/scripted',
    instructions: TEXT.repeat(4),
    temperature: 0.5,
    tools: [
      {
        type: 'function',
        name: 'weather',
        description: TEXT,
        parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
      },
    ],
    input: Array.from({ length: turns }, (_, turn) =>
      turn % 2 === 0
        ? { type: 'message', role: 'user', content: [{ type: 'input_text', text: TEXT.repeat(8) }] }
        : {
            type: 'message',
            id: `msg_${turn}`,
            role: 'assistant',
            status: 'completed',
            content: [{ type: 'output_text', text: TEXT.repeat(8), annotations: [] }],
          },
    ),
  }
}

const ANSWER = TEXT.repeat(20)
const REPLIES: Readonly<Record<FormatName, object>> = {
  'openai-responses': {
    id: 'resp_1',
    object: 'response',
    created_at: 1,
    status: 'completed',
    model: 'scripted',
    output: [
      {
        id: 'msg_1',
        type: 'message',
        role: 'assistant',
        status: 'completed',
        content: [{ type: 'output_text', text: ANSWER, annotations: [], logprobs: [] }],
      },
    ],
    usage: { input_tokens: 10, output_tokens: 20, total_tokens: 30 },
  },
  'openai-chat': {
    id: 'chatcmpl-1',
    object: 'chat.completion',
    model: 'scripted',
    choices: [{ index: 0, message: { role: 'assistant', content: ANSWER }, finish_reason: 'stop' }],
    usage: { prompt_tokens: 10, completion_tokens: 20, total_tokens: 30 },
  },
  'anthropic-messages': {
    id: 'msg_1',
    type: 'message',
    role: 'assistant',
    content: [{ type: 'text', text: ANSWER }],
    stop_reason: 'end_turn',
    usage: { input_tokens: 10, output_tokens: 20 },
  },
  'google-gemini': {
    candidates: [{ content: { role: 'model', parts: [{ text: ANSWER }] }, finishReason: 'STOP', index: 0 }],
    usageMetadata: { promptTokenCount: 10, candidatesTokenCount: 20, totalTokenCount: 30 },
  },
  'bedrock-converse': {
    output: { message: { role: 'assistant', content: [{ text: ANSWER }] } },
    stopReason: 'end_turn',
    usage: { inputTokens: 10, outputTokens: 20, totalTokens: 30 },
  },
}

async function measure(name: string, step: () => unknown): Promise<void> {
  const times: number[] = []
  for (let round = 0; round < ROUNDS; round++) {
    const started = process.hrtime.bigint()
    for (let time = 0; time < TIMES; time++) await step()
    times.push(Number(process.hrtime.bigint() - started) / TIMES)
  }
  times.sort((a, b) => a - b)
  const spread = `${(times[0] ?? 0).toFixed(0)}..${(times.at(-1) ?? 0).toFixed(0)}`
  process.stdout.write(
    `${name.padEnd(44)} ${(times[ROUNDS >> 1] ?? 0).toFixed(0).padStart(8)} ns (${spread})\n`,
  )
}

await measure('(nothing)', () => 0)
for (const turns of [1, 20]) {
  const bytes = Buffer.from(JSON.stringify(body(turns)))
  const size = `${(bytes.length / 1024).toFixed(1)} KiB`
  await measure(`parse JSON, ${size}`, () => JSON.parse(bytes.toString()))
  await measure(`parse JSON and validate, ${size}`, () => parseResponsesRequest(JSON.parse(bytes.toString())))
  for (const format of Object.keys(FORMATS) as FormatName[]) {
    const endpoint = scriptedEndpoint(format)
    const request = parseResponsesRequest(body(turns))
    await measure(`encode and stringify ${format}, ${size}`, () =>
      JSON.stringify(
        FORMATS[format].encode(
          { request: fitRequest(request, endpoint), stream: false, endUser: null },
          endpoint,
        ).body,
      ),
    )
  }
}
for (const format of Object.keys(FORMATS) as FormatName[]) {
  const endpoint = scriptedEndpoint(format)
  const bytes = Buffer.from(JSON.stringify(REPLIES[format]))
  await measure(`  of it parse and stringify alone`, () => JSON.stringify(JSON.parse(bytes.toString())))
  await measure(`whole attempt, ${format}, ${(bytes.length / 1024).toFixed(1)} KiB`, async () => {
    const sink = new FinalSink()
    const { handler, over } = startScripted(endpoint, sink, scriptedExchange({ stream: false }))
    handler.onData(bytes)
    handler.onEnd()
    await over
    assert.ok(JSON.stringify(sink.response).length > ANSWER.length)
  })
}
await measure('  of it the scripted exchange itself', () => scriptedExchange({ stream: false }))
