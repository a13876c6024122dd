/**
 * A stand-in for Anthropic's Messages API that enforces the rules of its documentation: signatures of thoughts, cache
 * marks and their order, results after calls. Its prompt cache works on the bytes of blocks, and the usage that it
 * reports states what was read and written.
 */
import { createHash } from 'node:crypto'
import type { ServerResponse } from 'node:http'
import { Provider } from './provider.ts'

type Fields = Record<string, unknown>

/** Cached prompts shorter than this are not kept, by the beginning of the model's name. */
const LEAST_TOKENS: readonly (readonly [string, number])[] = [
  ['claude-haiku', 4096],
  ['claude-opus', 4096],
  ['claude-', 1024],
]
const MARKS_MAX = 4
/** Blocks before a mark at which an earlier entry is looked for, the marked one included. */
const LOOK_BACK = 20
const TTL_MS: Readonly<Record<string, number>> = { '5m': 300_000, '1h': 3_600_000 }

/** What one call was billed, and what it could have read had every prompt before it been cached whole. */
interface Billed {
  readonly fresh: number
  readonly read: number
  readonly written5m: number
  readonly written1h: number
  readonly readable: number
  readonly marks: number
  readonly body: Fields
}

interface AnthropicStandIn {
  readonly url: string
  readonly billed: Billed[]
  /** Requests that it has refused, with the reason. */
  readonly refused: string[]
  /** The content of the next replies; thoughts are signed here. Default: `Done.` */
  readonly script: Fields[][]
  /** The time of its cache, in milliseconds. */
  nowMs: number
  close(): void
}

interface Block {
  /** The prompt up to the end of this block. */
  readonly key: string
  readonly tokens: number
  readonly ttl: string | null
}

class Refused extends Error {}

export async function startAnthropic(): Promise<AnthropicStandIn> {
  const cached = new Map<string, { until: number; readonly ttlMs: number }>()
  const seen = new Set<string>()
  const provider = new Provider(({ body }) => response => {
    try {
      answer(body, response)
    } catch (thrown) {
      if (!(thrown instanceof Refused)) throw thrown
      world.refused.push(thrown.message)
      const error = { type: 'invalid_request_error', message: thrown.message }
      response
        .writeHead(400, { 'content-type': 'application/json' })
        .end(JSON.stringify({ type: 'error', error }))
    }
  })
  const world: AnthropicStandIn = {
    url: await provider.listen(),
    billed: [],
    refused: [],
    script: [],
    nowMs: 0,
    close: () => void provider.close(),
  }
  return world

  function answer(body: Fields, response: ServerResponse): void {
    check(body)
    const blocks = blocksOf(body)
    checkMarks(blocks)
    const billed = bill(body, blocks)
    world.billed.push(billed)
    const said = (world.script.shift() ?? [{ type: 'text', text: 'Done.' }]).map(block =>
      block['type'] === 'thinking' ? { ...block, signature: signatureOf(block, body) } : block,
    )
    const { fresh, read, written5m, written1h } = billed
    const usage = {
      input_tokens: fresh,
      cache_read_input_tokens: read,
      cache_creation_input_tokens: written5m + written1h,
      cache_creation: { ephemeral_5m_input_tokens: written5m, ephemeral_1h_input_tokens: written1h },
      output_tokens: 20,
    }
    const stop_reason = said.some(({ type }) => type === 'tool_use') ? 'tool_use' : 'end_turn'
    const head = { id: 'msg_1', type: 'message', role: 'assistant', model: body['model'] }
    if (body['stream'] === true) stream(response, head, said, stop_reason, usage)
    else
      response
        .writeHead(200, { 'content-type': 'application/json' })
        .end(JSON.stringify({ ...head, content: said, stop_reason, usage }))
  }

  function bill(body: Fields, blocks: readonly Block[]): Billed {
    const model = String(body['model'])
    const least = LEAST_TOKENS.find(([name]) => model.startsWith(name))?.[1] ?? 1024
    const marked = blocks.flatMap(({ ttl }, at) => (ttl === null ? [] : [at]))
    let hit = -1
    for (const at of marked)
      for (let back = at; back > Math.max(-1, at - LOOK_BACK) && back > hit; back--) {
        const entry = cached.get(`${model} ${blocks[back]?.key}`)
        if (entry === undefined || entry.until <= world.nowMs) continue
        entry.until = world.nowMs + entry.ttlMs
        hit = back
      }
    const read = blocks[hit]?.tokens ?? 0
    const written = { '5m': 0, '1h': 0 } as Record<string, number>
    let covered = read
    for (const at of marked) {
      const block = blocks[at] as Block
      const ttl = block.ttl as string
      if (block.tokens < least) continue
      if (block.tokens > covered) {
        written[ttl] = (written[ttl] ?? 0) + block.tokens - covered
        covered = block.tokens
      }
      const ttlMs = TTL_MS[ttl] as number
      const key = `${model} ${block.key}`
      if ((cached.get(key)?.until ?? -1) <= world.nowMs)
        cached.set(key, { until: world.nowMs + ttlMs, ttlMs })
    }
    const known = blocks.findLast(({ key, tokens }) => tokens >= least && seen.has(`${model} ${key}`))
    for (const { key } of blocks) seen.add(`${model} ${key}`)
    return {
      fresh: (blocks.at(-1)?.tokens ?? 0) - covered,
      read,
      written5m: written['5m'] ?? 0,
      written1h: written['1h'] ?? 0,
      readable: known?.tokens ?? 0,
      marks: marked.length,
      body,
    }
  }
}

const listOf = (value: unknown): readonly Fields[] =>
  typeof value === 'string' ? [{ type: 'text', text: value }] : ((value ?? []) as readonly Fields[])

/** A block as the model reads it. */
function bytesOf({ cache_control: _, content, ...block }: Fields): string {
  return JSON.stringify(
    content === undefined ? block : { ...block, content: listOf(content).map(inner => bytesOf(inner)) },
  )
}

/** All blocks of a prompt, in the order in which they are cached. */
function blocksOf(body: Fields): readonly Block[] {
  const found: { text: string; mark: Fields | null }[] = []
  const add = (role: string, block: Fields): void => {
    const mark = (block['cache_control'] ?? null) as Fields | null
    if (mark !== null && block['type'] === 'text' && block['text'] === '')
      throw new Refused('cache_control cannot be set for empty text blocks')
    if (mark !== null && /^(?:redacted_)?thinking$/.test(String(block['type'])))
      throw new Refused('thinking blocks cannot be marked')
    if (mark !== null && block['defer_loading'] === true)
      throw new Refused('tools with defer_loading cannot use prompt caching')
    // Blocks within a result may be marked themselves; the mark counts at the end of the result here.
    const inner = Array.isArray(block['content'])
      ? (block['content'] as Fields[]).findLast(one => one['cache_control'] != null)?.['cache_control']
      : undefined
    found.push({ text: `${role} ${bytesOf(block)}`, mark: mark ?? ((inner ?? null) as Fields | null) })
  }
  for (const tool of listOf(body['tools'])) add('tool', tool)
  for (const block of listOf(body['system'])) add('system', block)
  for (const { role, content } of listOf(body['messages']))
    for (const block of listOf(content)) add(String(role), block)
  const closing = (body['cache_control'] ?? null) as Fields | null
  const last = found.at(-1)
  if (closing !== null && last !== undefined) last.mark ??= closing
  const hash = createHash('sha256')
  let length = 0
  return found.map(({ text, mark }) => {
    hash.update(`${text}\n`)
    length += text.length
    const ttl = mark === null ? null : String(mark['ttl'] ?? '5m')
    if (mark !== null && (mark['type'] !== 'ephemeral' || TTL_MS[ttl ?? ''] === undefined))
      throw new Refused('cache_control: type or ttl is not known')
    return { key: hash.copy().digest('base64'), tokens: Math.ceil(length / 4), ttl }
  })
}

function checkMarks(blocks: readonly Block[]): void {
  const times = blocks.flatMap(({ ttl }) => (ttl === null ? [] : [ttl]))
  if (times.length > MARKS_MAX)
    throw new Refused(`A maximum of 4 blocks with cache_control may be provided. Found ${times.length}.`)
  if (times.lastIndexOf('1h') > times.indexOf('5m') && times.includes('5m'))
    throw new Refused("a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block")
}

/** Binds a thought to its text and to the system prompt and tools of the call that made it. */
function signatureOf(thought: Fields, body: Fields): string {
  const plain = [body['system'], body['tools']].map(list => listOf(list).map(block => bytesOf(block)))
  return createHash('sha256')
    .update(JSON.stringify([thought['thinking'], plain]))
    .digest('base64')
}

function check(body: Fields): void {
  const messages = listOf(body['messages'])
  if (messages[0]?.['role'] !== 'user') throw new Refused('messages: first message must use the "user" role')
  for (const [at, { role, content }] of messages.entries())
    for (const block of listOf(content)) {
      const path = `messages.${at}`
      if (block['type'] === 'thinking') {
        if (role !== 'assistant') throw new Refused(`${path}: thinking in a message of the user`)
        if (block['signature'] !== signatureOf(block, body))
          throw new Refused(`${path}: Invalid \`signature\` in \`thinking\` block`)
      }
      if (block['type'] === 'tool_use') {
        const next = listOf(messages[at + 1]?.['content'])
        if (!next.some(one => one['type'] === 'tool_result' && one['tool_use_id'] === block['id']))
          throw new Refused(`${path}: \`tool_use\` ids were found without \`tool_result\` blocks after`)
      }
    }
}

function stream(
  response: ServerResponse,
  head: Fields,
  said: readonly Fields[],
  stop_reason: string,
  usage: Fields,
): void {
  response.writeHead(200, { 'content-type': 'text/event-stream' })
  const tell = (type: string, fields: Fields): void =>
    void response.write(`event: ${type}\ndata: ${JSON.stringify({ type, ...fields })}\n\n`)
  tell('message_start', {
    message: { ...head, content: [], stop_reason: null, usage: { ...usage, output_tokens: 1 } },
  })
  for (const [index, block] of said.entries()) {
    const { type } = block
    const empty =
      type === 'text'
        ? { type, text: '' }
        : type === 'thinking'
          ? { type, thinking: '', signature: '' }
          : { ...block, input: {} }
    tell('content_block_start', { index, content_block: empty })
    const deltas: Fields[] =
      type === 'text'
        ? [{ type: 'text_delta', text: block['text'] }]
        : type === 'thinking'
          ? [
              { type: 'thinking_delta', thinking: block['thinking'] },
              { type: 'signature_delta', signature: block['signature'] },
            ]
          : [{ type: 'input_json_delta', partial_json: JSON.stringify(block['input']) }]
    for (const delta of deltas) tell('content_block_delta', { index, delta })
    tell('content_block_stop', { index })
  }
  tell('message_delta', {
    delta: { stop_reason, stop_sequence: null },
    usage: { output_tokens: usage['output_tokens'] },
  })
  tell('message_stop', {})
  response.end()
}
