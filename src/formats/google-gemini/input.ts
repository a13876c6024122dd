/**
 * Encodes input items and their content parts as Gemini turns. Pure. Consecutive items of the model are one `model`
 * turn. Function results are a separate `user` turn, because Gemini matches them with the preceding calls. Signatures
 * go back to the parts they came with. Data is sent inline, URLs as `fileData`.
 */
import { filled, type Json, parseJson, record, records, textOrEmpty } from '../../base/json.ts'
import type { InputItem } from '../../protocol/items.ts'
import { parseWritten } from '../../protocol/json/as-written.ts'
import type { InputPart } from '../../protocol/parts.ts'
import { inexpressible } from '../failure.ts'
import type { Change } from '../format.ts'
import { noteOmittedThought, omitItem } from '../replayed.ts'

type TurnKind = 'user' | 'model' | 'results'

/**
 * Google's documented signature for calls of another model. Models that demand signatures refuse a call without one.
 */
const FOREIGN_CALL_SIGNATURE = 'skip_thought_signature_validator'

interface EncodedContents {
  readonly contents: Json[]
  /** Text of all system and developer messages, in their order. */
  readonly system: readonly string[]
  /** True if a turn of the user was added at the beginning. */
  readonly hasBegin: boolean
  /** Items that Gemini does not get. */
  readonly omissions: readonly Change[]
}

/**
 * The turns and system texts of an input. `needsSignatures`: the model demands signatures on calls.
 * @throws GatewayError `unprocessable` with the path of an item or part that Gemini cannot express.
 */
export function encodeContents(
  input: string | readonly InputItem[],
  needsSignatures: boolean,
): EncodedContents {
  const builder = new Turns(needsSignatures)
  if (typeof input === 'string') {
    if (input !== '') builder.add('user', [{ text: input }])
    return builder.finish()
  }
  for (const [index, item] of input.entries()) builder.addItem({ ...item }, `input[${index}]`)
  return builder.finish()
}

class Turns {
  readonly #needsSignatures: boolean
  readonly #turns: { readonly turn: TurnKind; readonly parts: Json[] }[] = []
  readonly #system: string[] = []
  /** Function names by call id: a result must repeat the name. */
  readonly #names = new Map<string, string>()
  readonly #omissions: Change[] = []
  /** A signature for the model's next part. */
  #signature: string | null = null

  constructor(needsSignatures: boolean) {
    this.#needsSignatures = needsSignatures
  }

  addItem(item: Json, path: string): void {
    const type = filled(item['type']) ?? 'message'
    const nativeParts = record(item['native'])?.['parts']
    if (Array.isArray(nativeParts)) {
      this.add('model', records(nativeParts))
      return
    }
    switch (type) {
      case 'message':
        this.#addMessage(item, path)
        break
      case 'reasoning':
        noteOmittedThought(item, 'google-gemini-v1', path, this.#omissions)
        this.#readReasoning(item)
        break
      case 'function_call':
        // preconditions/ has made the arguments the text of an object.
        this.#addCall(item, record(parseWritten(String(item['arguments']))) ?? {})
        break
      case 'function_call_output':
        this.#addResult(item, path)
        break
      case 'code_interpreter_call':
        this.#addCode(item)
        break
      case 'image_generation_call':
        this.#addImage(item)
        break
      default:
        omitItem(type, path, this.#omissions)
    }
  }

  add(turn: TurnKind, parts: readonly Json[]): void {
    if (parts.length === 0) return
    if (turn !== 'model') this.#settleSignature()
    const last = this.#turns.at(-1)
    if (last?.turn === turn) last.parts.push(...parts)
    else this.#turns.push({ turn, parts: [...parts] })
  }

  finish(): EncodedContents {
    this.#settleSignature()
    const contents = this.#turns.map(({ turn, parts }) => ({
      role: turn === 'model' ? 'model' : 'user',
      parts,
    }))
    // The API accepts calls only after a turn of the user.
    const hasBegin =
      contents[0]?.role === 'model' && contents[0].parts.some(part => part['functionCall'] !== undefined)
    if (hasBegin) contents.unshift({ role: 'user', parts: [{ text: 'Begin.' }] })
    return { contents, system: this.#system, hasBegin, omissions: this.#omissions }
  }

  /** Attaches a signature without a next part to an empty text at the end of the turn, where it came from. */
  #settleSignature(): void {
    if (this.#signature === null) return
    const signature = this.#signature
    this.#signature = null
    this.add('model', [{ text: '', thoughtSignature: signature }])
  }

  #addMessage(item: Json, path: string): void {
    const content = item['content']
    const parts: Json[] = []
    if (typeof content === 'string') {
      if (content !== '') parts.push({ text: content })
    } else {
      for (const [index, part] of records(content).entries()) {
        const wire = contentPart(part, `${path}.content[${index}]`)
        if (wire !== null) parts.push(wire)
      }
    }
    const role = item['role']
    if (role === 'system' || role === 'developer') {
      for (const part of parts) {
        if (typeof part['text'] !== 'string') {
          throw inexpressible(`${path}.content`, 'instructions for this provider must be text')
        }
        this.#system.push(part['text'])
      }
      return
    }
    if (role !== 'assistant') {
      this.add('user', parts)
      return
    }
    this.add('model', this.#withSignature(parts))
  }

  #withSignature(parts: readonly Json[]): readonly Json[] {
    const [firstPart, ...otherParts] = parts
    if (firstPart === undefined || this.#signature === null) return parts
    const signedPart = { ...firstPart, thoughtSignature: this.#signature }
    this.#signature = null
    return [signedPart, ...otherParts]
  }

  /** Gemini needs only the signature of its thoughts, not their text, and refuses signatures of other providers. */
  #readReasoning(item: Json): void {
    const signature = filled(item['signature'])
    if (item['format'] !== 'google-gemini-v1' || signature === null) return
    this.#settleSignature()
    this.#signature = signature
  }

  #addCall(item: Json, args: unknown): void {
    const name = String(item['name'])
    const id = String(item['call_id'])
    this.#names.set(id, name)
    let signature = filled(item['signature'])
    if (signature === null) {
      signature = this.#signature
      this.#signature = null
    } else {
      this.#settleSignature()
    }
    signature ??= filled(record(item['native'])?.['thoughtSignature'])
    // Only the first call of a turn has a signature.
    if (signature === null && this.#needsSignatures && !this.#hasCall()) signature = FOREIGN_CALL_SIGNATURE
    const part = { functionCall: { id, name, args } }
    this.add('model', [signature === null ? part : { ...part, thoughtSignature: signature }])
  }

  #hasCall(): boolean {
    const last = this.#turns.at(-1)
    return last?.turn === 'model' && last.parts.some(part => 'functionCall' in part)
  }

  #addResult(item: Json, path: string): void {
    const id = String(item['call_id'])
    const name = this.#names.get(id)
    if (name === undefined) {
      throw inexpressible(`${path}.call_id`, 'no call with this id precedes this output')
    }
    // preconditions/ has reduced the result to text.
    const { output } = item
    const text =
      typeof output === 'string'
        ? output
        : records(output)
            .map(part => textOrEmpty(part['text']))
            .join('\n')
    const response = responseObject(text, item['is_error'] === true)
    this.add('results', [{ functionResponse: { id, name, response } }])
  }

  #addCode(item: Json): void {
    const code = filled(item['code'])
    if (code === null) return
    const signature = filled(item['signature'])
    const id = filled(item['id'])
    // An id is Google's own only on what Google signed; the gateway's ids mean nothing to it.
    const idField = signature !== null && id !== null && !id.startsWith('st_') ? { id } : {}
    const parts: Json[] = [
      {
        executableCode: { ...idField, language: 'PYTHON', code },
        ...(signature === null ? {} : { thoughtSignature: signature }),
      },
    ]
    const outputs = records(item['outputs'])
    const logs = outputs.map(output => filled(output['logs'])).filter(text => text !== null)
    if (item['status'] !== 'incomplete' && Array.isArray(item['outputs'])) {
      const outcome = item['status'] === 'failed' ? 'OUTCOME_FAILED' : 'OUTCOME_OK'
      const output = logs.join('')
      parts.push({ codeExecutionResult: { ...idField, outcome, ...(output === '' ? {} : { output }) } })
    }
    this.add('model', parts)
  }

  #addImage(item: Json): void {
    const result = filled(item['result'])
    if (result === null) return
    const signature = filled(item['signature'])
    const mimeType = `image/${filled(item['output_format'])?.replace(/[^\w.+-]/g, '') ?? 'png'}`
    const part = /^https?:/i.test(result)
      ? { fileData: { mimeType, fileUri: result } }
      : { inlineData: { mimeType, data: result.replace(/^data:[^,]*,/, '') } }
    this.add('model', [signature === null ? part : { ...part, thoughtSignature: signature }])
  }
}

/**
 * A part of a message, including parts that only assistants write. Clients of this API may add fields that only it has.
 */
function contentPart(part: Json, path: string): Json | null {
  const nativeFields = record(part['native'])
  if (nativeFields === null) return plainPart(part, path)
  const nativePart = record(nativeFields['part']) ?? record(nativeFields['unknown'])
  if (nativePart !== null) return nativePart
  const wire = plainPart(part, path)
  return wire === null ? null : { ...wire, ...nativeFields }
}

function plainPart(part: Json, path: string): Json | null {
  const text =
    part['type'] === 'output_text' ? part['text'] : part['type'] === 'refusal' ? part['refusal'] : undefined
  if (text !== undefined) return typeof text === 'string' && text !== '' ? { text } : null
  return encodePart(part as InputPart, path)
}

/** A failure is sent under the API's name for it. */
function responseObject(output: string, isError: boolean): unknown {
  const response = record(parseJson(output))
  if (!isError) return response ?? { output }
  return response !== null && 'error' in response ? response : { error: response ?? output }
}

// Content parts

/** Media types by file name extension, for addresses and files without a type. */
const MEDIA_TYPES: ReadonlyMap<string, string> = new Map([
  ['png', 'image/png'],
  ['jpg', 'image/jpeg'],
  ['jpeg', 'image/jpeg'],
  ['webp', 'image/webp'],
  ['gif', 'image/gif'],
  ['heic', 'image/heic'],
  ['heif', 'image/heif'],
  ['pdf', 'application/pdf'],
  ['txt', 'text/plain'],
  ['md', 'text/markdown'],
  ['csv', 'text/csv'],
  ['html', 'text/html'],
  ['xml', 'text/xml'],
  ['json', 'application/json'],
  ['mp3', 'audio/mp3'],
  ['wav', 'audio/wav'],
  ['ogg', 'audio/ogg'],
  ['flac', 'audio/flac'],
  ['aac', 'audio/aac'],
  ['mp4', 'video/mp4'],
  ['mov', 'video/quicktime'],
  ['webm', 'video/webm'],
  ['mpeg', 'video/mpeg'],
  ['avi', 'video/x-msvideo'],
])

/**
 * One content part; null for an empty one.
 * @throws GatewayError `unprocessable` with the path if Gemini cannot load the content.
 */
function encodePart(part: InputPart, path: string): Json | null {
  switch (part.type) {
    case 'input_text':
      return part.text === '' ? null : { text: part.text }
    case 'input_image':
      return fromUrl(
        part.image_url ?? part.file_id ?? null,
        null,
        `${path}.${part.image_url == null ? 'file_id' : 'image_url'}`,
      )
    case 'input_file': {
      const type = typeOfName(part.filename ?? '')
      if (part.file_data == null) {
        return fromUrl(
          part.file_url ?? part.file_id ?? null,
          type,
          `${path}.${part.file_url == null ? 'file_id' : 'file_url'}`,
        )
      }
      if (part.file_data.startsWith('data:')) return inlineData(part.file_data, type, `${path}.file_data`)
      return { inlineData: { mimeType: type ?? 'application/pdf', data: part.file_data } }
    }
    case 'input_audio':
      return { inlineData: { mimeType: `audio/${part.input_audio.format}`, data: part.input_audio.data } }
    case 'input_video':
      return fromUrl(part.video_url, 'video/mp4', `${path}.video_url`)
  }
}

function fromUrl(url: string | null, fallbackType: string | null, path: string): Json {
  if (url !== null && /^data:/i.test(url)) return inlineData(url, fallbackType, path)
  // Google's own file ids are addresses; ids of other providers mean nothing to it.
  if (url === null || !/^(?:https?|gs):\/\//i.test(url)) {
    throw inexpressible(path, 'must be a data URL, or a URL with http, https or gs')
  }
  const mimeType = typeOfName(url.replace(/[?#].*$/s, '')) ?? fallbackType
  return { fileData: { ...(mimeType === null ? {} : { mimeType }), fileUri: url } }
}

/** Image types that Gemini models read: https://ai.google.dev/gemini-api/docs/image-understanding */
const IMAGE_TYPES: ReadonlySet<string> = new Set([
  'image/png',
  'image/jpeg',
  'image/webp',
  'image/heic',
  'image/heif',
])

function inlineData(url: string, fallbackType: string | null, path: string): Json {
  const comma = url.indexOf(',')
  const [type = '', ...parameters] = url.slice('data:'.length, comma).split(';')
  const mediaType = /^[\w.+-]+\/[\w.+-]+$/.test(type) ? type : fallbackType
  if (comma === -1 || mediaType === null) {
    throw inexpressible(path, 'must be a data URL with its media type')
  }
  const mimeType = mediaType === 'image/jpg' ? 'image/jpeg' : mediaType
  if (mimeType.startsWith('image/') && !IMAGE_TYPES.has(mimeType)) {
    throw inexpressible(path, 'must be a PNG, JPEG, WebP, HEIC or HEIF image')
  }
  const payload = url.slice(comma + 1)
  if (parameters.some(parameter => parameter.trim().toLowerCase() === 'base64')) {
    return { inlineData: { mimeType, data: payload } }
  }
  try {
    return { inlineData: { mimeType, data: Buffer.from(decodeURIComponent(payload)).toString('base64') } }
  } catch {
    throw inexpressible(path, 'the data URL is neither base64 nor percent-encoded text')
  }
}

function typeOfName(name: string): string | null {
  const extension = /\.([a-z0-9]{1,5})$/i.exec(name)?.[1]
  return extension === undefined ? null : (MEDIA_TYPES.get(extension.toLowerCase()) ?? null)
}
