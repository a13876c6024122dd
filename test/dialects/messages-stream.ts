/**
 * Reads the frames of a Messages stream in two ways: as the official client does, and strictly, with all fields. The
 * second one checks the order of events.
 */
import assert from 'node:assert/strict'
import Anthropic from '@anthropic-ai/sdk'
import type { StreamEvent } from '../../src/protocol/events.ts'
import type { ResponsesRequest } from '../../src/protocol/request.ts'
import { messages } from '../support/dialects.ts'

export type Loose = Record<string, unknown>

const ASKED = {
  model: 'acme/recorded',
  max_tokens: 100,
  messages: [{ role: 'user' as const, content: 'hi' }],
}
export const REQUEST = messages.parse(ASKED)

/** The frames of events, the end included. */
export function framesOf(events: readonly StreamEvent[], request: ResponsesRequest = REQUEST): string {
  const writer = messages.frames(request)
  return events.map(event => writer.write(event)).join('') + writer.end()
}

export function eventsIn(frames: string): Loose[] {
  const parts = frames.split('\n\n')
  assert.equal(parts.pop(), '', 'the last frame ends with a blank line')
  return parts.map(part => {
    const [, name, data] = /^event: (\w+)\ndata: (\{.*\})$/.exec(part) ?? []
    assert.notEqual(data, undefined, part)
    const event = JSON.parse(data ?? '') as Loose
    assert.equal(event['type'], name)
    return event
  })
}

/** What the official client makes of the frames. @throws APIError where an event is an error */
export async function throughClient(frames: string): Promise<Loose> {
  const client = new Anthropic({
    apiKey: 'sk-test',
    baseURL: 'http://127.0.0.1:9',
    maxRetries: 0,
    fetch: async () => new Response(frames, { headers: { 'content-type': 'text/event-stream' } }),
  })
  const { parsed_output: _, ...message } = await client.messages.stream(ASKED).finalMessage()
  return JSON.parse(JSON.stringify(message)) as Loose
}

/** The whole message that events make together. @throws AssertionError where the events are out of order */
export function gathered(events: readonly Loose[]): Loose {
  const [first, second, ...rest] = events
  assert.equal(first?.['type'], 'message_start')
  assert.deepEqual(second, { type: 'ping' })
  const message = structuredClone(first['message']) as Loose
  const content: Loose[] = []
  let open: Loose | null = null
  const [stop, delta, ...blocks] = rest.toReversed()
  assert.equal(stop?.['type'], 'message_stop')
  assert.equal(delta?.['type'], 'message_delta')
  for (const event of blocks.toReversed()) {
    assert.equal(event['index'], content.length - (open === null ? 0 : 1))
    if (event['type'] === 'content_block_start') {
      assert.equal(open, null, 'one block after the other')
      open = structuredClone(event['content_block']) as Loose
      content.push(open)
    } else if (event['type'] === 'content_block_delta') {
      assert.notEqual(open, null, 'a delta is of the open block')
      add(open ?? {}, event['delta'] as Loose)
    } else {
      assert.equal(event['type'], 'content_block_stop')
      assert.notEqual(open, null)
      if (typeof open?.['input'] === 'string') open['input'] = inputOf(open['input'])
      open = null
    }
  }
  assert.equal(open, null, 'every block ends')
  const { type: _, ...reports } = stop
  const { type: _type, delta: end, ...beside } = delta
  return { ...message, ...(end as Loose), ...beside, ...reports, content }
}

function add(block: Loose, delta: Loose): void {
  switch (delta['type']) {
    case 'text_delta':
      assert.equal(block['type'], 'text')
      block['text'] = `${block['text']}${delta['text']}`
      return
    case 'thinking_delta':
      assert.equal(block['type'], 'thinking')
      block['thinking'] = `${block['thinking']}${delta['thinking']}`
      return
    case 'signature_delta':
      block['signature'] = delta['signature']
      return
    case 'citations_delta':
      assert.equal(block['type'], 'text')
      block['citations'] = [...((block['citations'] as unknown[] | null) ?? []), delta['citation']]
      return
    case 'input_json_delta':
      assert.match(String(block['type']), /_use$/)
      block['input'] =
        (typeof block['input'] === 'string' ? block['input'] : '') + String(delta['partial_json'])
      return
    default:
      assert.fail(`a delta of type ${delta['type']}`)
  }
}

/** As a whole message has it. */
function inputOf(text: string): unknown {
  if (text.trim() === '') return {}
  try {
    const value: unknown = JSON.parse(text)
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value
  } catch {
    // What a model wrote may be anything.
  }
  return { arguments: text }
}

/**
 * With neighbouring texts as one and their citations in any order: in a stream, only some providers tell the border
 * where a citation begins, and citations come as the provider tells them.
 */
export function joined(message: Loose): Loose {
  const content: Loose[] = []
  for (const block of message['content'] as Loose[]) {
    const last = content.at(-1)
    if (last?.['type'] !== 'text' || block['type'] !== 'text') content.push({ ...block })
    else {
      last['text'] = `${last['text']}${block['text']}`
      const both = [last['citations'], block['citations']].flatMap(each => (each as unknown[] | null) ?? [])
      last['citations'] = both.length === 0 ? null : both
    }
  }
  for (const block of content) {
    const { citations } = block
    if (Array.isArray(citations)) block['citations'] = citations.map(each => JSON.stringify(each)).toSorted()
  }
  return { ...message, content }
}

/** What the official client keeps of a streamed message. */
export function known(message: Loose): Loose {
  const { usage, alignment: _, gateway_metadata: __, ...rest } = message
  const counted = usage as Loose
  const names = [
    'input_tokens',
    'output_tokens',
    'cache_creation_input_tokens',
    'cache_read_input_tokens',
    'server_tool_use',
    'output_tokens_details',
  ]
  return { ...rest, usage: Object.fromEntries(names.map(name => [name, counted[name] ?? null])) }
}
