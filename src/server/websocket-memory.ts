/**
 * WebSocket conversation state: the last response of each lane with the conversation before it, so that the next
 * request can refer to it and send only its new items. An in-memory cache, bounded per socket, per key and per thread.
 * It disappears with its socket. A request that continues a response that is not kept is refused, and the client sends
 * the whole conversation. Serve threads.
 */
import { CONTINUES } from '../protocol/json/request-notes.ts'
import { isObject } from '../protocol/json/schema.ts'

/** Maximum number of bytes of one socket. */
export const SOCKET_MEMORY_MAX_BYTES = 16 * 1024 * 1024
/** Maximum number of lanes of one socket. */
const MAX_LANES = 64

/** The lane of requests that do not name one. */
export const NO_LANE = ''

/** A response that a request may continue. */
interface StoredResponse {
  readonly id: string
  readonly lane: string
  readonly memory: SocketMemory
  /** JSON arrays of items, in order: the conversation before its request. */
  readonly earlierParts: readonly Uint8Array[]
  /** The message with the request; only its new items are part of the conversation. */
  readonly message: Uint8Array
  /** Its last event. */
  readonly lastEvent: string
  readonly bytes: number
}

/** The conversation that a request continues. */
export interface Conversation {
  readonly id: string
  /** JSON arrays of items, in order. */
  readonly parts: readonly Uint8Array[]
}

interface MemoryLimits {
  /** Limit for one key. */
  readonly perKey: number
  /** Limit for all keys of a thread. */
  readonly total: number
}

/** The responses of the sockets of one key, the oldest first. */
interface KeyMemory {
  readonly responses: Set<StoredResponse>
  bytes: number
}

/** The memories of all sockets of a thread. */
export class SocketMemories {
  readonly #limits: MemoryLimits
  readonly #ofKey = new Map<string, KeyMemory>()
  bytes = 0

  constructor(limits: MemoryLimits) {
    this.#limits = limits
  }

  /** The memory of a new socket. */
  open(keyHash: string): SocketMemory {
    return new SocketMemory(this, keyHash)
  }

  /**
   * Only for `SocketMemory`. To make room, the oldest responses are dropped: first of this key, as long as it exceeds
   * its limit, then of the key that holds most. The new response goes last of its key.
   */
  add(keyHash: string, response: StoredResponse): void {
    const { perKey, total } = this.#limits
    let keyMemory = this.#ofKey.get(keyHash)
    if (keyMemory === undefined) {
      keyMemory = { responses: new Set(), bytes: 0 }
      this.#ofKey.set(keyHash, keyMemory)
    }
    keyMemory.responses.add(response)
    keyMemory.bytes += response.bytes
    this.bytes += response.bytes
    while (keyMemory.bytes > perKey) dropOldest(keyMemory)
    while (this.bytes > total) dropOldest(this.#largest())
  }

  /** Only for `SocketMemory`. */
  remove(keyHash: string, response: StoredResponse): void {
    const keyMemory = this.#ofKey.get(keyHash)
    if (keyMemory?.responses.delete(response) !== true) return
    keyMemory.bytes -= response.bytes
    this.bytes -= response.bytes
    if (keyMemory.responses.size === 0) this.#ofKey.delete(keyHash)
  }

  /** The key that holds most; it is never empty. */
  #largest(): KeyMemory {
    let largest: KeyMemory = { responses: new Set(), bytes: -1 }
    for (const memory of this.#ofKey.values()) if (memory.bytes > largest.bytes) largest = memory
    return largest
  }
}

function dropOldest({ responses }: KeyMemory): void {
  for (const response of responses) {
    response.memory.drop(response)
    return
  }
}

/** The last responses of one socket. */
export class SocketMemory {
  readonly #memories: SocketMemories
  readonly #keyHash: string
  /** Keyed by lane, the oldest first. */
  readonly #lanes = new Map<string, StoredResponse>()
  #bytes = 0

  constructor(memories: SocketMemories, keyHash: string) {
    this.#memories = memories
    this.#keyHash = keyHash
  }

  /** The conversation up to the response of any lane with this id; null if it is not kept. */
  continue(id: string): Conversation | null {
    for (const response of this.#lanes.values()) {
      if (response.id === id) return { id, parts: partsOf(response) }
    }
    return null
  }

  /** Bytes of the longest conversation that a request may continue. */
  get largestBytes(): number {
    let largest = 0
    for (const { bytes } of this.#lanes.values()) largest = Math.max(largest, bytes)
    return largest
  }

  /**
   * Keeps the response as the last one of its lane.
   * @param message the request, unchanged
   * @param lastEvent the last event of the response
   */
  remember(
    id: string,
    lane: string,
    conversation: Conversation | null,
    message: Uint8Array,
    lastEvent: string,
  ): void {
    this.#forgetLane(lane)
    const earlierParts = conversation?.parts ?? []
    const bytes =
      earlierParts.reduce((sum, part) => sum + part.byteLength, 0) +
      message.byteLength +
      Buffer.byteLength(lastEvent)
    if (bytes > SOCKET_MEMORY_MAX_BYTES) return
    const response: StoredResponse = { id, lane, memory: this, earlierParts, message, lastEvent, bytes }
    this.#lanes.set(lane, response)
    this.#bytes += bytes
    this.#memories.add(this.#keyHash, response)
    for (const oldest of this.#lanes.values()) {
      if (this.#bytes <= SOCKET_MEMORY_MAX_BYTES && this.#lanes.size <= MAX_LANES) return
      this.drop(oldest)
    }
  }

  /** Forgets a response. */
  forget(id: string): void {
    for (const response of this.#lanes.values()) if (response.id === id) this.drop(response)
  }

  /** Forgets all responses. */
  clear(): void {
    for (const response of this.#lanes.values()) this.drop(response)
  }

  /** Only for `SocketMemories` and this class. */
  drop(response: StoredResponse): void {
    if (this.#lanes.get(response.lane) === response) {
      this.#lanes.delete(response.lane)
      this.#bytes -= response.bytes
    }
    this.#memories.remove(this.#keyHash, response)
  }

  #forgetLane(lane: string): void {
    const last = this.#lanes.get(lane)
    if (last !== undefined) this.drop(last)
  }
}

/**
 * The conversation up to the end of the response, whose message and answer become one part. Called only for a request
 * that continues the response.
 */
function partsOf({ earlierParts, message, lastEvent }: StoredResponse): readonly Uint8Array[] {
  const request = JSON.parse(Buffer.from(message).toString()) as { readonly input?: unknown }
  const response = JSON.parse(lastEvent) as { readonly response?: { readonly output?: unknown } }
  const output = response.response?.output
  const items = [...itemsOf(request.input), ...(Array.isArray(output) ? output : [])].filter(
    isConversationItem,
  )
  return [...earlierParts, Buffer.from(JSON.stringify(items))]
}

/** False for an item that asks for a compaction, because it applies only to its own request. */
function isConversationItem(item: unknown): boolean {
  return !(isObject(item) && item['type'] === 'compaction_trigger')
}

/** The items of an input; a text becomes one message. */
function itemsOf(input: unknown): readonly unknown[] {
  if (Array.isArray(input)) return input
  return input == null ? [] : [{ type: 'message', role: 'user', content: input }]
}

/**
 * The body, with the conversation that it continues before its own items, and a note of the response's id. `parse`:
 * parses JSON within its bounds.
 */
export function withEarlier(
  body: Readonly<Record<string, unknown>>,
  { id, parts }: Conversation,
  parse: (bytes: Uint8Array) => unknown,
): Record<string, unknown> {
  const items: unknown[] = []
  for (const part of parts) for (const item of parse(part) as readonly unknown[]) items.push(item)
  for (const item of itemsOf(body['input'])) items.push(item)
  return { ...body, input: items, [CONTINUES]: id }
}

/** The lane that a message names; NO_LANE if it names none or is not JSON. */
export function laneIn(message: ArrayBuffer): string {
  if (!namesLane(message)) return NO_LANE
  try {
    const body: unknown = JSON.parse(Buffer.from(message).toString())
    const lane = isObject(body) ? body['stream_id'] : undefined
    return typeof lane === 'string' ? lane : NO_LANE
  } catch {
    return NO_LANE
  }
}

/** True for a message that may name a lane. */
export function namesLane(message: ArrayBuffer): boolean {
  return Buffer.from(message).includes('"stream_id"')
}

/** False for a message that continues no response. The name of a field may be written with escapes. */
export function mayContinue(message: ArrayBuffer): boolean {
  const bytes = Buffer.from(message)
  return bytes.includes('"previous_response_id"') || bytes.includes('\\u')
}
