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
import { FILLER, itemsIn, ownThought, type PartItem, signatureOfCall } from './seals.ts'

/** The origin of an item. */
export interface PartPosition {
  /** Index of the content; null: the system instruction. */
  readonly content: number | null
  /** Index of its first part; null: it has none. */
  readonly part: number | null
  /** Each part of the item comes from a part of its own. */
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
  /** Keyed by item. */
  readonly places: PartPosition[] = []
  /** Calls without a result. */
  readonly #open: Call[] = []

  /** @throws GatewayError `invalid_request` for parts that are not text */
  system({ parts }: GeminiContent): void {
    const texts = (parts ?? []).map((part, at) => {
      if (part.text == null) throw refuseField(`systemInstruction.parts[${at}]`, 'must be text')
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
    } else if (role === 'model') new ModelTurn(this.#modelPush(index), this.#open, index).add(parts)
    else this.#user(parts, index)
  }

  #modelPush(index: number): Push {
    return (item, part, isDivided) => this.#push(item, index, part, isDivided)
  }

  #user(parts: readonly Part[], index: number): void {
    let run: PartItem[] | null = null
    for (const [at, part] of parts.entries()) {
      if (part.functionResponse != null) {
        run = null
        this.#push(this.#result(part.functionResponse, index, at), index, at)
        continue
      }
      if (run === null) {
        run = []
        this.#push({ type: 'message', role: 'user', content: run }, index, at, true)
      }
      run.push(messagePart(part, 'input_text'))
    }
  }

  #result(result: NonNullable<Part['functionResponse']>, index: number, at: number): PartItem {
    const { id, name, response, parts } = result
    const outputText = responseText(response ?? {})
    const media = (parts ?? []).map(part => mediaPart(part) ?? unknownPart(part as Part, 'input_text'))
    const output = media.length === 0 ? outputText : [{ type: 'input_text', text: outputText }, ...media]
    // The API's name for the result of a failed call.
    const failed = response?.['error'] == null ? {} : { is_error: true }
    return {
      type: 'function_call_output',
      call_id: this.#callOf(id ?? '', name, index, at),
      output,
      ...failed,
    }
  }

  #callOf(id: string, name: string, index: number, at: number): string {
    const open = this.#open
    const found =
      id === '' ? open.findIndex(call => call.name === name) : open.findIndex(call => call.id === id)
    const [call] = found === -1 ? [] : open.splice(found, 1)
    if (call !== undefined) return call.id
    if (id !== '') return id
    const path = `contents[${index}].parts[${at}].functionResponse.name`
    throw refuseField(path, 'there is no open call to this function: send the call before its result')
  }

  #push(item: PartItem, content: number | null, part: number | null, isDivided = false): void {
    this.items.push(item)
    this.places.push({ content, part, isDivided })
  }
}

function isPlainText(part: Part | undefined): boolean {
  return part?.text != null && Object.keys(part).length === 1
}

type Push = (item: PartItem, part: number | null, isDivided: boolean) => void

/** One turn of the model. */
class ModelTurn {
  readonly #push: Push
  readonly #open: Call[]
  readonly #index: number
  /** The parts of the open message. */
  #run: PartItem[] | null = null
  /** Code that the provider runs, before its result. */
  #code: PartItem | null = null
  #count = 0
  /** True: thoughts come back inside a signature, with their text. */
  #carriesThoughts = false

  constructor(push: Push, open: Call[], index: number) {
    this.#push = push
    this.#open = open
    this.#index = index
  }

  add(parts: readonly Part[]): void {
    const carried = parts.map(({ thoughtSignature }) =>
      thoughtSignature == null || thoughtSignature === '' ? null : itemsIn(thoughtSignature),
    )
    this.#carriesThoughts = carried.some(items => items?.some(item => item['type'] === 'reasoning'))
    for (const [at, part] of parts.entries()) {
      const items = carried[at] ?? null
      for (const item of items ?? []) this.#add(item, at)
      const { thoughtSignature } = part
      const signature = items !== null || thoughtSignature === '' ? null : (thoughtSignature ?? null)
      if (part.thought === true) this.#thought(part, signature, at)
      else this.#part(part, signature, at)
    }
    // An empty turn still separates the turns before and after it.
    if (this.#count === 0) this.#add({ type: 'message', role: 'assistant', content: '' }, null)
  }

  #add(item: PartItem, at: number | null, isDivided = false): void {
    if (!isDivided) this.#run = null
    this.#count++
    this.#push(item, at, isDivided)
  }

  #thought({ text }: Part, signature: string | null, at: number): void {
    const isKnown = this.#carriesThoughts || text == null || text === ''
    if (signature !== null && signature !== FILLER) {
      const summary = isKnown ? [] : [{ type: 'summary_text', text }]
      this.#add({ ...ownThought(signature), summary }, at)
    } else if (!isKnown)
      this.#add({ type: 'reasoning', summary: [], content: [{ type: 'reasoning_text', text }] }, at)
  }

  #part(part: Part, signature: string | null, at: number): void {
    if (part.text != null) this.#text(part.text, signature, at)
    else if (part.functionCall != null) this.#call(part.functionCall, signature, at)
    else if (part.executableCode != null) this.#executableCode(part.executableCode, signature, at)
    else if (part.codeExecutionResult != null) this.#codeResult(part.codeExecutionResult)
    else this.#other(part, signature, at)
  }

  #text(text: string, signature: string | null, at: number): void {
    if (signature !== null && signature !== FILLER) {
      // The signature belongs to this part, and its item precedes it.
      this.#add(ownThought(signature), at)
    }
    if (text === '') return
    this.#addPart({ type: 'output_text', text }, at)
  }

  #addPart(part: PartItem, at: number): void {
    if (this.#run === null) {
      const run: PartItem[] = []
      this.#add({ type: 'message', role: 'assistant', content: run }, at, true)
      this.#run = run
    }
    this.#run.push(part)
  }

  #call({ id, name, args }: NonNullable<Part['functionCall']>, signature: string | null, at: number): void {
    const callId = id == null || id === '' ? `call_${this.#index}_${at}` : id
    this.#open.push({ id: callId, name })
    const signed = signature === null ? {} : signedCall(signature)
    const call = { type: 'function_call', call_id: callId, name, arguments: writtenJson(args ?? {}) }
    this.#add({ ...call, ...signed }, at)
  }

  #executableCode(
    { id, code }: NonNullable<Part['executableCode']>,
    signature: string | null,
    at: number,
  ): void {
    this.#code = {
      type: 'code_interpreter_call',
      id: id ?? `ci_${this.#index}_${at}`,
      status: 'incomplete',
      code,
      container_id: '',
      outputs: null,
      ...(signature === null ? {} : { signature: signatureOfCall(signature) }),
    }
    this.#add(this.#code, at)
  }

  #codeResult({ outcome, output }: NonNullable<Part['codeExecutionResult']>): void {
    if (this.#code === null) return
    this.#code['status'] = outcome == null || outcome === 'OUTCOME_OK' ? 'completed' : 'failed'
    this.#code['outputs'] = output == null ? [] : [{ type: 'logs', logs: output }]
    this.#code = null
  }

  #other(part: Part, signature: string | null, at: number): void {
    const media = mediaPart(part)
    if (media?.['type'] === 'input_image' && typeof media['image_url'] === 'string') {
      const drawn = drawnItem(media['image_url'], this.#index * PARTS_APART + at)
      this.#add(signature === null ? drawn : { ...drawn, signature: signatureOfCall(signature) }, at)
    } else if ('toolCall' in part || 'toolResponse' in part) {
      // The provider ran it itself; others need not know of it.
      const id = `ws_${this.#index}_${at}`
      this.#add({ type: 'web_search_call', id, status: 'completed', native: { parts: [part] } }, at)
    } else this.#addPart(unknownPart(part, 'output_text'), at)
  }
}

function signedCall(signature: string): PartItem {
  if (signature === FILLER) return { native: { thoughtSignature: FILLER } }
  return { signature: signatureOfCall(signature) }
}

/** Drawings of different turns have different ids. */
const PARTS_APART = 10_000

/** The result as a text: the text of `output` if it is the only field, otherwise the whole object as JSON. */
function responseText(response: Readonly<Record<string, unknown>>): string {
  const { output, ...others } = response
  if (typeof output !== 'string' || Object.keys(others).length > 0) return JSON.stringify(response)
  // A text that is itself a JSON object would be read as the result object.
  return /^\s*\{/.test(output) ? JSON.stringify(response) : output
}
