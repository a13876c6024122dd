/** Recorded replies of Converse and ConverseStream, against a second reading that shares nothing with the decoder. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { bedrockConverse } from '../../../src/formats/bedrock-converse.ts'
import { decodeBody, decodeStream } from '../../support/decode-reply.ts'
import { arrivals, type Recording, recordings, withoutRecordings } from '../../support/recordings.ts'
import { type Collected, collect } from '../delta-items.ts'

const FOLDER = join(import.meta.dirname, '../../../../shared/fixtures')

interface Said {
  text: string
  reasoning: string
  signature: string
  calls: { callId: string; name: string; arguments: unknown }[]
  native: string
  tokens: readonly [input: number, output: number] | null
}

interface Block {
  readonly text?: string
  readonly toolUse?: { readonly toolUseId: string; readonly name: string; readonly input: unknown }
  readonly reasoningContent?: {
    readonly text?: string
    readonly signature?: string
    readonly reasoningText?: { readonly text: string; readonly signature: string }
  }
}

interface Reply {
  readonly output: { readonly message: { readonly content: readonly Block[] } }
  readonly stopReason: string
  readonly usage: { readonly inputTokens: number; readonly outputTokens: number }
}

interface Event {
  readonly contentBlockStart?: { readonly contentBlockIndex: number; readonly start: Block }
  readonly contentBlockDelta?: { readonly contentBlockIndex: number; readonly delta: Block }
  readonly messageStop?: { readonly stopReason: string }
  readonly metadata?: { readonly usage: Reply['usage'] }
}

const nothing = (): Said => ({ text: '', reasoning: '', signature: '', calls: [], native: '', tokens: null })

function readBody(body: string): Said {
  const reply = JSON.parse(body) as Reply
  const said = nothing()
  for (const { text, toolUse, reasoningContent } of reply.output.message.content) {
    said.text += text ?? ''
    said.reasoning += reasoningContent?.reasoningText?.text ?? ''
    said.signature += reasoningContent?.reasoningText?.signature ?? ''
    if (toolUse) said.calls.push({ callId: toolUse.toolUseId, name: toolUse.name, arguments: toolUse.input })
  }
  return { ...said, native: reply.stopReason, tokens: [reply.usage.inputTokens, reply.usage.outputTokens] }
}

function readEvents(events: readonly Event[]): Said {
  const said = nothing()
  const inputs = new Map<number, string>()
  for (const { contentBlockStart: start, contentBlockDelta: piece, messageStop, metadata } of events) {
    if (start?.start.toolUse) {
      const { toolUseId: callId, name } = start.start.toolUse
      said.calls.push({ callId, name, arguments: start.contentBlockIndex })
      inputs.set(start.contentBlockIndex, '')
    }
    said.text += piece?.delta.text ?? ''
    said.reasoning += piece?.delta.reasoningContent?.text ?? ''
    said.signature += piece?.delta.reasoningContent?.signature ?? ''
    if (piece?.delta.toolUse) {
      const at = piece.contentBlockIndex
      inputs.set(at, (inputs.get(at) ?? '') + String(piece.delta.toolUse.input))
    }
    if (messageStop) said.native = messageStop.stopReason
    if (metadata) said.tokens = [metadata.usage.inputTokens, metadata.usage.outputTokens]
  }
  const calls = said.calls.map(call => ({
    ...call,
    arguments: JSON.parse(inputs.get(call.arguments as number) || '{}') as unknown,
  }))
  return { ...said, calls }
}

function saidBy({ text, reasoning, calls, items, usage, finish }: Collected): Said {
  return {
    text,
    reasoning,
    signature: items.map(item => String(item['signature'] ?? '')).join(''),
    calls: calls.map(({ callId, name, arguments: json }) => ({
      callId: callId ?? '',
      name,
      arguments: JSON.parse(json) as unknown,
    })),
    native: finish?.native ?? '',
    tokens: usage === null ? null : [usage.inputTokens, usage.outputTokens],
  }
}

const ALL = recordings('bedrock-converse')

/** The events of a recording, whose framing its source has removed. */
function eventsOf({ file }: Recording): readonly Event[] {
  const lines = readFileSync(join(FOLDER, file), 'utf8').split('\n')
  return lines.filter(line => line.trim() !== '').map(line => JSON.parse(line) as Event)
}

t.test(
  'every recorded stream decodes to what it says, however its messages arrive',
  { skip: withoutRecordings },
  async t => {
    const streams = ALL.filter(({ streamed }) => streamed)
    for (const recording of streams) {
      const events = eventsOf(recording)
      const expected = readEvents(events)
      for (const { name, chunks } of arrivals(recording.bytes())) {
        const said = saidBy(collect(decodeStream(bedrockConverse, chunks)))
        t.strictSame(said, expected, `${recording.name} arriving ${name}`)
      }
      // Proxies without binary messages send the events with their names inside.
      const unnamed = collect(
        (() => {
          const deltas: Parameters<typeof collect>[0][number][] = []
          const decoder = bedrockConverse.decoder(delta => deltas.push(delta))
          for (const event of events) decoder.frame('', JSON.stringify(event))
          decoder.end()
          return deltas
        })(),
      )
      t.strictSame(saidBy(unnamed), expected, `${recording.name} without names`)
    }
    t.equal(streams.length, 8)
  },
)

t.test('every recorded body decodes to what it says', { skip: withoutRecordings }, async t => {
  const bodies = ALL.filter(({ streamed, httpStatus }) => !streamed && httpStatus === 200)
  for (const recording of bodies) {
    const body = recording.bytes().toString('utf8')
    t.strictSame(saidBy(collect(decodeBody(bedrockConverse, body))), readBody(body), recording.name)
  }
  t.equal(bodies.length, 9)
})

t.test('every recorded error has its code and its words', { skip: withoutRecordings }, async t => {
  const errors = ALL.filter(({ httpStatus }) => httpStatus !== 200)
  const codes = errors.map(recording => {
    const { code, message } = bedrockConverse.failure(
      recording.httpStatus ?? 0,
      recording.bytes().toString('utf8'),
    )
    t.ok(recording.bytes().toString('utf8').includes(message.slice(0, 40)), recording.name)
    return `${recording.httpStatus} ${code}`
  })
  t.same(codes.toSorted(), [
    '400 context_length_exceeded',
    '400 invalid_request',
    '403 provider_unavailable',
    '404 provider_unavailable',
  ])
})
