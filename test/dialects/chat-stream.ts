/**
 * Reads the frames of a chat stream in two ways: as the official client does, and as a client does that also knows
 * the fields that the official one replaces instead of gathering. The second one is strict about the order of chunks.
 */
import assert from 'node:assert/strict'
import OpenAI from 'openai'
import type { StreamEvent } from '../../src/protocol/events.ts'
import type { ResponsesRequest } from '../../src/protocol/request.ts'
import { chatCompletions } from '../support/dialects.ts'

export type Loose = Record<string, unknown>

export const REQUEST = chatCompletions.parse({
  model: 'acme/recorded',
  messages: [{ role: 'user', content: 'hi' }],
})

/** The frames of events, the end included. */
export function framesOf(events: readonly StreamEvent[], request: ResponsesRequest = REQUEST): string {
  const writer = chatCompletions.frames(request)
  return events.map(event => writer.write(event)).join('') + writer.end()
}

export function chunksOf(frames: string): Loose[] {
  const lines = frames.split('\n\n')
  assert.equal(lines.pop(), '', 'the last frame ends with a blank line')
  assert.equal(lines.pop(), 'data: [DONE]')
  return lines.map(line => {
    assert.match(line, /^data: \{.*\}$/)
    return JSON.parse(line.slice('data: '.length)) as Loose
  })
}

/** What the official client makes of the frames. @throws APIError where a chunk holds an error */
export async function throughClient(frames: string): Promise<Loose> {
  const client = new OpenAI({
    apiKey: 'sk-test',
    baseURL: 'http://127.0.0.1:9/v1',
    maxRetries: 0,
    fetch: async () => new Response(frames, { headers: { 'content-type': 'text/event-stream' } }),
  })
  const stream = client.chat.completions.stream({
    model: 'acme/recorded',
    messages: [{ role: 'user', content: 'hi' }],
  })
  return (await stream.finalChatCompletion()) as unknown as Loose
}

/** The whole completion that chunks make together. @throws AssertionError where the chunks are out of order */
export function gathered(chunks: readonly Loose[]): Loose {
  const [first] = chunks
  assert(first !== undefined)
  const message: Loose = { role: null, content: null, refusal: null, reasoning: null }
  const choice: Loose = { index: 0, logprobs: null }
  const whole: Loose = {
    object: 'chat.completion',
    system_fingerprint: null,
    choices: [{ ...choice, message }],
  }
  let spoke = false
  chunks.forEach((chunk, at) => {
    for (const field of ['id', 'created', 'model'] as const) assert.equal(chunk[field], first[field])
    assert.equal(chunk['object'], 'chat.completion.chunk')
    const { choices, object: _, ...rest } = chunk
    Object.assign(whole, rest)
    const [said, ...others] = choices as Loose[]
    assert.equal(others.length, 0)
    if (said === undefined) return
    assert.equal(said['index'], 0)
    assert.equal(choice['finish_reason'], undefined, 'nothing follows the finish')
    const { role, ...delta } = said['delta'] as Loose
    assert.equal(role, spoke ? undefined : 'assistant', `role in the first delta, at ${at}`)
    message['role'] ??= role
    spoke = true
    add(message, delta)
    const logprobs = said['logprobs'] as { content: unknown[] } | null
    if (logprobs !== null) {
      choice['logprobs'] ??= { content: [], refusal: null }
      ;(choice['logprobs'] as { content: unknown[] }).content.push(...logprobs.content)
    }
    if (said['finish_reason'] !== null) {
      choice['finish_reason'] = said['finish_reason']
      choice['native_finish_reason'] = said['native_finish_reason']
    }
  })
  assert.notEqual(choice['finish_reason'], undefined, 'there is a finish')
  const withUsage = chunks.filter(chunk => 'usage' in chunk)
  assert(withUsage.length <= 1)
  if (withUsage.length === 1) {
    assert.equal(withUsage[0], chunks.at(-1), 'usage stands in the last chunk')
    assert.deepEqual(withUsage[0]?.['choices'], [])
  }
  whole['choices'] = [{ ...choice, message }]
  return whole
}

function add(message: Loose, delta: Loose): void {
  for (const [name, value] of Object.entries(delta)) {
    if (name === 'content' || name === 'refusal' || name === 'reasoning') {
      message[name] = `${message[name] ?? ''}${String(value)}`
    } else if (name === 'annotations' || name === 'images') {
      message[name] = [...((message[name] as unknown[] | undefined) ?? []), ...(value as unknown[])]
    } else if (name === 'reasoning_details' || name === 'tool_calls') {
      message[name] ??= []
      for (const entry of value as Loose[]) merge(message[name] as Loose[], entry)
    } else {
      assert.fail(`a delta with ${name}`)
    }
  }
}

/** Adds an entry to the one of its index; texts are appended. */
function merge(list: Loose[], entry: Loose): void {
  const at = entry['index'] as number
  assert(at <= list.length, 'indexes have no gaps')
  const known = list[at]
  if (known === undefined) {
    list.push(structuredClone(entry))
    return
  }
  for (const [name, value] of Object.entries(entry)) {
    const before = known[name]
    if (typeof value === 'object' && value !== null)
      merge([before as Loose], { ...(value as Loose), index: 0 })
    else if (['text', 'summary', 'arguments', 'input'].includes(name))
      known[name] = `${before ?? ''}${String(value)}`
    else known[name] = value
  }
  if (known['function'] !== undefined) delete (known['function'] as Loose)['index']
  if (known['custom'] !== undefined) delete (known['custom'] as Loose)['index']
}

/** What the official client gathers of a completion; of the fields that it does not know it keeps the last piece. */
export function known(completion: Loose): Loose {
  const { choices, system_fingerprint: _, ...rest } = completion
  return {
    ...rest,
    choices: (choices as (Loose & { message: Loose })[]).map(({ message, ...choice }) => ({
      ...choice,
      role: message['role'],
      content: message['content'],
      refusal: message['refusal'],
      tool_calls: ((message['tool_calls'] ?? []) as Loose[]).map(({ index, ...call }) => call),
    })),
  }
}
