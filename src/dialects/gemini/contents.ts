/**
 * Translates `systemInstruction` and `contents` to input items. Pure. Hot path: one walk. A turn of the model becomes
 * the items that it produced, in order; a turn of a user is split at function results, which are items of their own.
 * Calls may come back without an id: a result then belongs to the first open call of its function.
 */
import { refuseField } from '../../base/errors.ts'
import { writtenJson } from '../../protocol/json/as-written.ts'
import { drawnItem } from '../hosted-items.ts'
import type { GeminiContent, Part } from './body-schema.ts'
import { mediaPart, messagePart, unknownPart } from './parts.ts'
import { googleThought, itemsIn, type PartItem, PLACEHOLDER_SIGNATURE, signatureOfCall } from './seals.ts'

/** The position in the body from which an item comes. */
export interface PartPosition {
  /** Index of the content; null: the system instruction. */
  readonly content: number | null
  /** Index of its first part; null: it has none. */
  readonly part: number | null
  /** True: each part of the item comes from a part of its own. */
  readonly isDivided: boolean
}

interface Call {
  readonly id: string
  readonly name: string
}

const ROLES: ReadonlySet<string> = new Set(['user', 'function', 'model', ''])

/** Turns checked contents into items; remembers what later turns need of earlier ones. */
export class GeminiConversation {
  readonly items: PartItem[] = []
  /** One for each item. */
  readonly positions: PartPosition[] = []
  /** Calls without a result. */
  readonly #openCalls: Call[] = []

  /** @throws GatewayError `invalid_request` for parts that are not text */
  addSystem({ parts }: GeminiContent): void {
    const texts = (parts ?? []).map((part, index) => {
      if (part.text == null) throw refuseField(`systemInstruction.parts[${index}]`, 'must be text')
      return { type: 'input_text', text: part.text }
    })
    if (texts.length > 0) this.#push({ type: 'message', role: 'system', content: texts }, null, 0, true)
  }

  /** @throws GatewayError `invalid_request` for a role that the API does not have, and a result without a call */
  add(content: GeminiContent, index: number): void {
    const role = content.role ?? ''
    if (!ROLES.has(role)) throw refuseField(`contents[${index}].role`, 'must be user or model')
    const parts = content.parts ?? []
    if (parts.length === 0) {
      const itemRole = role === 'model' ? 'assistant' : 'user'
      this.#push({ type: 'message', role: itemRole, content: '' }, index, null)
    } else if (parts.length === 1 && role !== 'model' && isPlainText(parts[0])) {
      this.#push({ type: 'message', role: 'user', content: parts[0]?.text }, index, 0)
    } else if (role === 'model') new ModelTurn(this.#pushFor(index), this.#openCalls, index).add(parts)
    else this.#addUserTurn(parts, index)
  }

  #pushFor(index: number): Push {
    return (item, part, isDivided) => this.#push(item, index, part, isDivided)
  }

  #addUserTurn(parts: readonly Part[], index: number): void {
    let messageParts: PartItem[] | null = null
    for (const [partIndex, part] of parts.entries()) {
      if (part.functionResponse != null) {
        messageParts = null
        this.#push(this.#resultItem(part.functionResponse, index, partIndex), index, partIndex)
        continue
      }
      if (messageParts === null) {
        messageParts = []
        this.#push({ type: 'message', role: 'user', content: messageParts }, index, partIndex, true)
      }
      messageParts.push(messagePart(part, 'input_text'))
    }
  }

  #resultItem(result: NonNullable<Part['functionResponse']>, index: number, partIndex: number): PartItem {
    const { id, name, response, parts } = result
    const outputText = responseText(response ?? {})
    const media = (parts ?? []).map(part => mediaPart(part) ?? unknownPart(part as Part, 'input_text'))
    const output = media.length === 0 ? outputText : [{ type: 'input_text', text: outputText }, ...media]
    // The API's name for the result of a failed call.
    const failure = response?.['error'] == null ? {} : { is_error: true }
    return {
      type: 'function_call_output',
      call_id: this.#callIdOf(id ?? '', name, index, partIndex),
      output,
      ...failure,
    }
  }

  #callIdOf(id: string, name: string, index: number, partIndex: number): string {
    const open = this.#openCalls
    const position =
      id === '' ? open.findIndex(call => call.name === name) : open.findIndex(call => call.id === id)
    const [call] = position === -1 ? [] : open.splice(position, 1)
    if (call !== undefined) return call.id
    if (id !== '') return id
    const path = `contents[${index}].parts[${partIndex}].functionResponse.name`
    throw refuseField(path, 'there is no open call to this function: send the call before its result')
  }

  #push(item: PartItem, content: number | null, part: number | null, isDivided = false): void {
    this.items.push(item)
    this.positions.push({ content, part, isDivided })
  }
}

function isPlainText(part: Part | undefined): boolean {
  return part?.text != null && Object.keys(part).length === 1
}

type Push = (item: PartItem, part: number | null, isDivided: boolean) => void

/** One turn of the model. */
class ModelTurn {
  readonly #push: Push
  readonly #openCalls: Call[]
  readonly #index: number
  /** The parts of the open message. */
  #messageParts: PartItem[] | null = null
  /** Code that the provider runs, before its result. */
  #openCode: PartItem | null = null
  #itemCount = 0
  /** True: thoughts come back inside a signature, with their text. */
  #carriesThoughts = false

  constructor(push: Push, open: Call[], index: number) {
    this.#push = push
    this.#openCalls = open
    this.#index = index
  }

  add(parts: readonly Part[]): void {
    const itemsByPart = parts.map(({ thoughtSignature }) =>
      thoughtSignature == null || thoughtSignature === '' ? null : itemsIn(thoughtSignature),
    )
    this.#carriesThoughts = itemsByPart.some(items => items?.some(item => item['type'] === 'reasoning'))
    for (const [partIndex, part] of parts.entries()) {
      const items = itemsByPart[partIndex] ?? null
      for (const item of items ?? []) this.#add(item, partIndex)
      const { thoughtSignature } = part
      const signature = items !== null || thoughtSignature === '' ? null : (thoughtSignature ?? null)
      if (part.thought === true) this.#addThought(part, signature, partIndex)
      else this.#readPart(part, signature, partIndex)
    }
    // An empty turn still separates the turns before and after it.
    if (this.#itemCount === 0) this.#add({ type: 'message', role: 'assistant', content: '' }, null)
  }

  #add(item: PartItem, partIndex: number | null, isDivided = false): void {
    if (!isDivided) this.#messageParts = null
    this.#itemCount++
    this.#push(item, partIndex, isDivided)
  }

  #addThought({ text }: Part, signature: string | null, partIndex: number): void {
    const isKnown = this.#carriesThoughts || text == null || text === ''
    if (signature !== null && signature !== PLACEHOLDER_SIGNATURE) {
      const summary = isKnown ? [] : [{ type: 'summary_text', text }]
      this.#add({ ...googleThought(signature), summary }, partIndex)
    } else if (!isKnown)
      this.#add({ type: 'reasoning', summary: [], content: [{ type: 'reasoning_text', text }] }, partIndex)
  }

  #readPart(part: Part, signature: string | null, partIndex: number): void {
    if (part.text != null) this.#addText(part.text, signature, partIndex)
    else if (part.functionCall != null) this.#addCall(part.functionCall, signature, partIndex)
    else if (part.executableCode != null) this.#addCode(part.executableCode, signature, partIndex)
    else if (part.codeExecutionResult != null) this.#setCodeResult(part.codeExecutionResult)
    else this.#addMediaOrUnknown(part, signature, partIndex)
  }

  #addText(text: string, signature: string | null, partIndex: number): void {
    if (signature !== null && signature !== PLACEHOLDER_SIGNATURE) {
      // The signature belongs to this part, and its item precedes it.
      this.#add(googleThought(signature), partIndex)
    }
    if (text === '') return
    this.#addPart({ type: 'output_text', text }, partIndex)
  }

  #addPart(part: PartItem, partIndex: number): void {
    if (this.#messageParts === null) {
      const messageParts: PartItem[] = []
      this.#add({ type: 'message', role: 'assistant', content: messageParts }, partIndex, true)
      this.#messageParts = messageParts
    }
    this.#messageParts.push(part)
  }

  #addCall(
    { id, name, args }: NonNullable<Part['functionCall']>,
    signature: string | null,
    partIndex: number,
  ): void {
    const callId = id == null || id === '' ? `call_${this.#index}_${partIndex}` : id
    this.#openCalls.push({ id: callId, name })
    const signatureFields = signature === null ? {} : signatureFieldsOf(signature)
    const call = { type: 'function_call', call_id: callId, name, arguments: writtenJson(args ?? {}) }
    this.#add({ ...call, ...signatureFields }, partIndex)
  }

  #addCode(
    { id, code }: NonNullable<Part['executableCode']>,
    signature: string | null,
    partIndex: number,
  ): void {
    this.#openCode = {
      type: 'code_interpreter_call',
      id: id ?? `ci_${this.#index}_${partIndex}`,
      status: 'incomplete',
      code,
      container_id: '',
      outputs: null,
      ...(signature === null ? {} : { signature: signatureOfCall(signature) }),
    }
    this.#add(this.#openCode, partIndex)
  }

  #setCodeResult({ outcome, output }: NonNullable<Part['codeExecutionResult']>): void {
    if (this.#openCode === null) return
    this.#openCode['status'] = outcome == null || outcome === 'OUTCOME_OK' ? 'completed' : 'failed'
    this.#openCode['outputs'] = output == null ? [] : [{ type: 'logs', logs: output }]
    this.#openCode = null
  }

  #addMediaOrUnknown(part: Part, signature: string | null, partIndex: number): void {
    const media = mediaPart(part)
    if (media?.['type'] === 'input_image' && typeof media['image_url'] === 'string') {
      const image = drawnItem(media['image_url'], this.#index * IMAGE_IDS_PER_TURN + partIndex)
      this.#add(signature === null ? image : { ...image, signature: signatureOfCall(signature) }, partIndex)
    } else if ('toolCall' in part || 'toolResponse' in part) {
      // The provider ran this tool itself; other providers need not know of the call.
      const id = `ws_${this.#index}_${partIndex}`
      this.#add({ type: 'web_search_call', id, status: 'completed', native: { parts: [part] } }, partIndex)
    } else this.#addPart(unknownPart(part, 'output_text'), partIndex)
  }
}

function signatureFieldsOf(signature: string): PartItem {
  if (signature === PLACEHOLDER_SIGNATURE) return { native: { thoughtSignature: PLACEHOLDER_SIGNATURE } }
  return { signature: signatureOfCall(signature) }
}

/** Drawings of different turns have different ids. */
const IMAGE_IDS_PER_TURN = 10_000

/** The result as a text: the text of `output` if it is the only field, otherwise the whole object as JSON. */
function responseText(response: Readonly<Record<string, unknown>>): string {
  const { output, ...otherFields } = response
  if (typeof output !== 'string' || Object.keys(otherFields).length > 0) return JSON.stringify(response)
  // A text that is itself a JSON object would be read as the result object.
  return /^\s*\{/.test(output) ? JSON.stringify(response) : output
}
