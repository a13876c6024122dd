/**
 * Decodes one reply of the Gemini API into Deltas: SSE chunks, a JSON array of chunks, or one whole body, which all
 * have the same shape. Hot path.
 * A finish reason in a chunk is not the end: a reply that runs code sends STOP before every run. So the finish waits
 * for the end of the stream, and later content cancels it.
 */
import { GatewayError } from '../../base/errors.ts'
import { filled, type Json, listOrEmpty, parseFrame, record, records } from '../../base/json.ts'
import type { Logprob } from '../../protocol/parts.ts'
import { finishReason, isCut } from '../finish-reasons.ts'
import type { Decoder, Delta, HostedStart, ItemStart } from '../format.ts'
import { LongText } from '../long-text.ts'
import { checkedCount, nameIn, Withheld } from '../withheld.ts'
import { GeminiCalls } from './calls.ts'
import { errorOf, failureOf, promptRefusal } from './failure.ts'
import { Citations, CodeRun, codeItem, emitImage, emitSearch, imageItem, searchItem } from './hosted.ts'
import { tierOf, usageOf } from './usage.ts'

interface OpenMessage {
  readonly item: number
  readonly text: LongText
  open: boolean
}

export class GeminiDecoder implements Decoder {
  readonly #emit: (delta: Delta) => void
  readonly #calls: GeminiCalls
  readonly #withheld = new Withheld()
  readonly #citations = new Citations(this.#withheld)
  readonly #messages: OpenMessage[] = []
  #itemCount = 0
  #isStarted = false
  #message: OpenMessage | null = null
  #reasoning: number | null = null
  /** Signatures of the open message; they follow it as separate items, so as not to cut it. */
  #heldSignatures: string[] = []
  #code: CodeRun | null = null
  /** True if citations for earlier text may still arrive. */
  #mayCite = false
  #finish: string | null = null
  /** The provider's explanation of its finish reason. */
  #finishMessage: string | null = null
  /** True if the reply is one document, which cannot be cut off. */
  #isWhole = false
  #hasUsage = false
  isSettled = false
  /** True if the reply runs code: it may continue after each finish reason. */
  #runsCode = false
  #serviceTier: string | null = null

  constructor(emit: (delta: Delta) => void) {
    this.#emit = emit
    this.#calls = new GeminiCalls(emit, this.#withheld, () => {
      this.#interrupt('call')
      return this.#nextItem()
    })
  }

  get withheld(): number {
    return this.#withheld.bytes
  }

  frame(_event: string, data: string, isWhole = false): void {
    if (data.trim() === '[DONE]') return
    this.#isWhole = isWhole
    const body = parseFrame(data)
    if (!Array.isArray(body)) this.#readChunk(body)
    else for (const chunk of body) this.#readChunk(chunk)
    this.isSettled = this.#finish !== null && this.#hasUsage && !this.#runsCode
  }

  end(): void {
    const nativeReason = this.#finish
    if (nativeReason === null && !(this.#isWhole && this.#itemCount > 0)) {
      throw new GatewayError('provider_unavailable', 'The provider ended the reply before it was complete')
    }
    const ending =
      nativeReason === null ? 'stop' : finishReason(nativeReason, this.#itemCount > 0, this.#finishMessage)
    const reason = ending === 'stop' && this.#calls.hasCalls ? 'tool_calls' : ending
    const cutOff = isCut(reason)
    this.#calls.finish(cutOff)
    this.#closeCode()
    if (this.#reasoning !== null && reason !== 'length') this.#closeReasoning(null)
    this.#emitCitations()
    for (const message of this.#messages) if (!cutOff || message !== this.#message) this.#close(message)
    this.#releaseSignatures()
    this.#emitSearches()
    this.#emit({ kind: 'finish', reason, native: nativeReason, serviceTier: this.#serviceTier })
  }

  #readChunk(value: unknown): void {
    const error = errorOf(value)
    if (error !== null) throw failureOf(error, null)
    const chunk = record(value)
    if (chunk === null)
      throw new GatewayError('provider_unavailable', 'The provider sent a reply in an unknown format')

    const candidate = firstCandidate(chunk['candidates'])
    const feedback = record(chunk['promptFeedback'])
    if (feedback !== null && candidate === null && this.#itemCount === 0) refuseBlocked(feedback)
    this.#start(chunk)
    if (candidate !== null) this.#readCandidate(candidate)
    else if (nameIn(feedback?.['blockReason']) !== null) this.#finish = nameIn(feedback?.['blockReason'])

    const metadata = record(chunk['usageMetadata'])
    if (metadata !== null) {
      const usage = usageOf(metadata, this.#citations.searches)
      if (usage !== null) {
        this.#hasUsage = true
        this.#emit({ kind: 'usage', usage })
      }
      this.#serviceTier = tierOf(metadata) ?? this.#serviceTier
    }
  }

  #start(chunk: Json): void {
    if (this.#isStarted) return
    const upstreamId = nameIn(chunk['responseId'])
    const model = nameIn(chunk['modelVersion'])
    if (upstreamId === null && model === null && !Array.isArray(chunk['candidates'])) return
    this.#isStarted = true
    this.#emit({ kind: 'start', upstreamId, model })
  }

  #readCandidate(candidate: Json): void {
    const { parts, finish, hasCitations, logprobs } = readCandidate(candidate)
    if (hasCitations) this.#mayCite = true
    // The decoder adds the byte values of tokens, which take more memory than the frame.
    for (const { bytes, top_logprobs: top } of logprobs ?? []) {
      this.#withheld.add(bytes)
      for (const alternative of top ?? []) this.#withheld.add(alternative.bytes)
    }
    let logprobsLeft = logprobs
    for (const element of parts) {
      const part = record(element)
      if (part !== null && this.#readPart(part, logprobsLeft)) logprobsLeft = null
    }
    if (hasCitations) this.#citations.read(candidate)
    if (finish === null) return
    this.#finish = finish
    this.#finishMessage = filled(candidate['finishMessage'])
  }

  /** Returns true if the log probabilities of the chunk went out with this part. */
  #readPart(part: Json, logprobs: readonly Logprob[] | null): boolean {
    const signature = filled(part['thoughtSignature'])
    const text = part['text']
    if (typeof text === 'string') {
      if (part['thought'] !== true) return this.#addText(text, signature, logprobs)
      this.#addThought(text, signature)
      return false
    }
    const call = record(part['functionCall'])
    const code = record(part['executableCode'])
    const result = record(part['codeExecutionResult'])
    const data = record(part['inlineData'])
    const tool = record(part['toolCall'])
    if (call !== null) this.#calls.readCall(call, signature)
    else if (code !== null) this.#addCode(code, signature)
    else if (result !== null) this.#addCodeResult(result)
    else if (data !== null) this.#addInlineData(data, part['thought'] === true, signature)
    else if (tool !== null) this.#citations.search(record(tool['args'])?.['queries'])
    else if (signature !== null && Object.keys(part).length === 1) this.#addSignature(signature)
    return false
  }

  #nextItem(): number {
    const item = checkedCount(this.#itemCount, 'output items')
    this.#itemCount++
    // Content after a finish reason shows that the reply had not ended.
    this.#finish = null
    return item
  }

  #open(start: ItemStart): number {
    const item = this.#nextItem()
    this.#emit({ kind: 'open', item, start })
    return item
  }

  /** The answer makes the id, unless the item has one that a later turn needs. */
  #openHosted(item: HostedStart): number {
    return this.#open({ type: 'hosted', item })
  }

  #addText(text: string, signature: string | null, logprobs: readonly Logprob[] | null): boolean {
    if (text === '') {
      if (signature !== null) this.#addSignature(signature)
      return false
    }
    this.#calls.close('completed')
    this.#closeCode()
    if (this.#reasoning !== null) {
      this.#closeReasoning(signature)
      signature = null
    } else if (signature !== null && this.#message === null) {
      this.#addSignature(signature)
      signature = null
    }
    if (this.#message === null) {
      const item = this.#open({ type: 'message', id: null, phase: null })
      this.#message = { item, text: new LongText(), open: true }
      this.#messages.push(this.#message)
    }
    this.#finish = null
    this.#message.text.add(text)
    this.#emit({ kind: 'text', item: this.#message.item, part: 0, text, logprobs })
    if (signature !== null) this.#addSignature(signature)
    return true
  }

  #addThought(text: string, signature: string | null): void {
    if (text !== '') {
      this.#interrupt('reasoning')
      this.#reasoning ??= this.#open({ type: 'reasoning', id: null, format: 'google-gemini-v1' })
      this.#finish = null
      this.#emit({ kind: 'reasoning', item: this.#reasoning, form: 'summary', part: 0, text })
    }
    if (signature !== null) this.#addSignature(signature)
  }

  /** Adds a signature that no call or code has: it closes the open thoughts, or becomes a reasoning item. */
  #addSignature(signature: string): void {
    if (this.#message !== null) {
      this.#heldSignatures.push(signature)
      this.#withheld.add(signature)
      return
    }
    if (this.#reasoning === null) {
      const finish = this.#finish
      this.#interrupt('reasoning')
      this.#reasoning = this.#open({ type: 'reasoning', id: null, format: 'google-gemini-v1' })
      // A signature alone does not cancel a finish reason.
      this.#finish = finish
    }
    this.#closeReasoning(signature)
  }

  #releaseSignatures(): void {
    if (this.#heldSignatures.length === 0) return
    const signatures = this.#heldSignatures
    this.#heldSignatures = []
    this.#message = null
    for (const signature of signatures) this.#addSignature(signature)
  }

  #addCode(code: Json, signature: string | null): void {
    this.#interrupt('code')
    this.#runsCode = true
    this.#code = new CodeRun(this.#emit, this.#openHosted(codeItem(code)), signature)
    this.#code.setCode(code)
  }

  #addCodeResult(result: Json): void {
    if (this.#code === null || this.#code.hasResult) {
      // The result of code that was not shown.
      this.#interrupt('code')
      this.#code = new CodeRun(this.#emit, this.#openHosted(codeItem(result)), null)
    }
    this.#finish = null
    this.#code.setResult(result)
    this.#withheld.add(result)
  }

  #addInlineData(data: Json, isDraft: boolean, signature: string | null): void {
    const type = filled(data['mimeType']) ?? ''
    const base64 = filled(data['data'])
    // Drafts that the model made while thinking are not its answer; the vocabulary has no place for sound.
    if (base64 === null || isDraft || !type.startsWith('image/')) return
    if (this.#code?.hasResult === true) {
      this.#finish = null
      this.#code.addImage(type, base64)
      this.#withheld.add(base64)
      return
    }
    this.#interrupt('image')
    emitImage(this.#emit, this.#openHosted(imageItem()), type, base64, signature)
  }

  /** Completes the open content before another kind begins. */
  #interrupt(kind: 'reasoning' | 'call' | 'code' | 'image'): void {
    this.#calls.close('completed')
    this.#closeCode()
    if (kind !== 'reasoning' && this.#reasoning !== null) this.#closeReasoning(null)
    const message = this.#message
    this.#message = null
    // Metadata that cites this text may arrive later, so the message stays open until the end.
    if (message !== null && !this.#mayCite) this.#close(message)
    this.#releaseSignatures()
  }

  #close(message: OpenMessage): void {
    if (!message.open) return
    message.open = false
    this.#emit({ kind: 'close', item: message.item, fields: null })
  }

  #closeReasoning(signature: string | null): void {
    if (this.#reasoning === null) return
    this.#emit({ kind: 'close', item: this.#reasoning, fields: signature === null ? null : { signature } })
    this.#reasoning = null
  }

  #closeCode(): void {
    this.#code?.close()
    this.#code = null
  }

  #emitCitations(): void {
    const open = new Set(this.#messages.filter(message => message.open).map(message => message.item))
    const texts = this.#messages.map(message => ({ item: message.item, text: message.text.toString() }))
    for (const { item, annotation } of this.#citations.annotationsOf(texts)) {
      if (open.has(item)) this.#emit({ kind: 'annotation', item, part: 0, annotation })
    }
  }

  /** Adds the searches and opened pages, which only the metadata of the finished reply names. */
  #emitSearches(): void {
    const queries = this.#citations.queries
    if (queries.length > 0) {
      const sources = this.#citations.sources.map(url => ({ type: 'url', url }))
      this.#addSearch({ type: 'search', query: queries[0], queries, sources }, true)
    }
    for (const [url, isLoaded] of this.#citations.pages) this.#addSearch({ type: 'open_page', url }, isLoaded)
  }

  #addSearch(action: Json, succeeded: boolean): void {
    emitSearch(this.#emit, this.#openHosted(searchItem(action)), succeeded)
  }
}

function refuseBlocked(feedback: Json): void {
  const reason = filled(feedback['blockReason'])
  const message = filled(feedback['blockReasonMessage'])
  if (reason !== null || message !== null) throw promptRefusal(reason, message)
}

// The candidate of a chunk, read key by key

interface Candidate {
  readonly parts: readonly unknown[]
  readonly logprobs: readonly Logprob[] | null
  /** The provider's finish reason; null before the end. */
  readonly finish: string | null
  /** True if its metadata may cite earlier or later text. */
  readonly hasCitations: boolean
}

/** The protocol's value for a reply that is not finished. */
const UNSPECIFIED_FINISH = 'FINISH_REASON_UNSPECIFIED'

function readCandidate(candidate: Json): Candidate {
  let parts: readonly unknown[] = []
  let logprobs: readonly Logprob[] | null = null
  let finish: string | null = null
  let cites = false
  for (const key in candidate) {
    switch (key) {
      case 'content':
        parts = listOrEmpty(record(candidate[key])?.['parts'])
        break
      case 'logprobsResult':
        logprobs = logprobsOf(record(candidate[key]))
        break
      case 'finishReason':
        finish = nameIn(candidate[key])
        break
      case 'groundingMetadata':
      case 'citationMetadata':
      case 'urlContextMetadata':
        if (record(candidate[key]) !== null) cites = true
        break
    }
  }
  return { parts, logprobs, finish: finish === UNSPECIFIED_FINISH ? null : finish, hasCitations: cites }
}

/** The candidate with index 0, which the protocol may omit. The gateway never requests others. */
function firstCandidate(candidates: unknown): Json | null {
  for (const element of listOrEmpty(candidates)) {
    const candidate = record(element)
    if (candidate === null) continue
    const index = candidate['index']
    if (index === undefined || index === 0) return candidate
  }
  return null
}

/** `logprobsResult` in the Responses vocabulary; null if there are none. */
function logprobsOf(result: Json | null): readonly Logprob[] | null {
  if (result === null) return null
  const alternatives = listOrEmpty(result['topCandidates'])
  const logprobs: Logprob[] = []
  for (const [position, choice] of records(result['chosenCandidates']).entries()) {
    const logprob = logprobOf(choice)
    if (logprob === null) continue
    const top: Logprob[] = []
    for (const candidate of records(record(alternatives[position])?.['candidates'])) {
      const alternative = logprobOf(candidate)
      if (alternative !== null) top.push(alternative)
    }
    logprobs.push({ ...logprob, top_logprobs: top })
  }
  return logprobs.length === 0 ? null : logprobs
}

function logprobOf(candidate: Json): { token: string; logprob: number; bytes: number[] } | null {
  const token = candidate['token']
  const logprob = candidate['logProbability']
  if (typeof token !== 'string' || typeof logprob !== 'number') return null
  return { token, logprob, bytes: [...Buffer.from(token)] }
}
