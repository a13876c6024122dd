/** Sink: receives the events of an exchange, for an event stream or one JSON body. Hot path. */
import { randomUUID } from 'node:crypto'
import type { GatewayError } from '../../base/errors.ts'
import type { ExchangeLine } from '../../base/log/log.ts'
import type { Exchange } from '../../exchange/exchange.ts'
import type { Masks } from '../../exchange/masks.ts'
import type { StreamEvent } from '../../protocol/events.ts'
import type { DialectName } from '../../protocol/request.ts'
import type { GatewayMetadata, ResponseResource, ResponseUsage } from '../../protocol/response.ts'

export interface Sink {
  /**
   * True if the client sees writes at once, so that the first content commits the answer. False if nothing is sent
   * before the end; then only the terminal event is written, and a draft may be dropped until then.
   */
  readonly live: boolean
  /** The dialect whose frames `relay` accepts as bytes; null if every event has to be written. */
  readonly relays: DialectName | null
  /** True if its clients react to a prompt that is too long even if the stream reports it after the opening events. */
  readonly tellsOverflow?: boolean
  /** Takes the number of tokens that were cut from the prompt, before the first event that is sent. */
  reportCompression?(tokens: number): void
  /** Called with the number of changes that the request needed, before the first event that is sent. */
  reportChanges?(changes: number): void
  /** Called before the first event of an earlier answer; `ageSeconds`: since its end, 0 if it still runs. */
  reportCached?(ageSeconds: number): void
  /** True if everything that is written after its client has left is dropped. Absent: then nothing may be written. */
  readonly outlivesClient?: boolean
  /**
   * Puts the originals of these placeholders into all that leaves from here on; may be called again with the same. Absent:
   * its reader sees placeholders.
   */
  unmask?(masks: Masks): void
  /**
   * Writes one event. Returns false if the reader is slow: write no more until it has drained (the event itself was
   * accepted).
   */
  write(event: StreamEvent): boolean
  /**
   * Writes `events` whole frames of an event stream as bytes, which are valid only during the call; returns the same as
   * `write`. Never called if `relays` is null.
   */
  relay(frames: Buffer, events: number): boolean
  /** The frames of the last written event; absent if `relays` is null. */
  readonly lastFrames?: string
  /**
   * Takes an event that the client received in relayed frames, possibly several merged into one: nothing is written for
   * it. Absent if `relays` is null.
   */
  overhear?(event: StreamEvent): void
  /** Stores the only text of a reply, as JSON, and returns its placeholder; absent or null if it is not stored. */
  keep?(json: string): string | null
  /** Lets later events be sent together: at the latest with `flush`, in the same turn of the loop. */
  cork(): void
  /** Writes the held events. False as for `write`, which returns true meanwhile. */
  flush(): boolean
  /** Sets the function to call each time writing may continue after a false. One callback; a later call replaces it. */
  onDrain(resume: () => void): void
  /** Called after all events, including the terminal one. */
  end(): void
}

/** Placeholder for a kept text in a document. No client can know it. */
const TEXT_PLACEHOLDER = randomUUID()

interface FinalSinkOptions {
  /** Gets each event as well. Absent: no observer. */
  readonly listener?: ((event: StreamEvent) => void) | undefined
  /**
   * True if a provider's text is written as the JSON it already is, so that the object has a placeholder for it. Nothing
   * may read the object before `json` has written it.
   */
  readonly keepsText?: boolean
}

/** A sink that keeps the final object, for callers who want one JSON document. */
export class FinalSink implements Sink {
  readonly live: boolean
  readonly relays = null
  response: ResponseResource | null = null
  /** Tokens that were cut from the prompt. */
  removedTokens = 0
  /** The number of changes that the request needed for its provider. */
  changes = 0
  /** The age in seconds of the earlier answer that the client gets; null: the answer is new. */
  cachedAge: number | null = null
  readonly outlivesClient = true
  /** The placeholders in the response; null: there are none. */
  masks: Masks | null = null
  /** Also set for a failed reply. */
  usage: ResponseUsage | null = null
  readonly #listener: ((event: StreamEvent) => void) | undefined
  readonly #keepsText: boolean
  /** Without the quotes. */
  #keptJson: string | null = null

  constructor({ listener, keepsText = false }: FinalSinkOptions = {}) {
    this.live = listener !== undefined
    this.#listener = listener
    this.#keepsText = keepsText
  }

  reportCompression(tokens: number): void {
    this.removedTokens = tokens
  }

  reportChanges(changes: number): void {
    this.changes = changes
  }

  reportCached(ageSeconds: number): void {
    this.cachedAge = ageSeconds
  }

  unmask(masks: Masks): void {
    this.masks = masks
  }

  write(event: StreamEvent): boolean {
    if (event.type === 'response.completed' || event.type === 'response.incomplete') {
      this.response = event.response
      this.usage = event.response.usage ?? null
    } else if (event.type === 'response.failed') this.usage = event.response.usage ?? null
    this.#listener?.(event)
    return true
  }

  relay(): boolean {
    return true
  }

  cork(): void {
    // Nothing is sent before the end.
  }

  flush(): boolean {
    return true
  }

  onDrain(): void {
    // Never slow, so there is nothing to resume.
  }

  end(): void {
    // There is nothing but the object.
  }

  keep(json: string): string | null {
    if (!this.#keepsText) return null
    this.#keptJson = json.slice(1, -1)
    return TEXT_PLACEHOLDER
  }

  /** The JSON of a document that was built from the response. */
  json(document: unknown): string {
    const json = JSON.stringify(document)
    const text = this.#keptJson
    return text === null ? json : json.replaceAll(TEXT_PLACEHOLDER, () => text)
  }
}

/** The part of the log line that only the pipeline knows. */
export type ExchangeSummary = Pick<
  ExchangeLine,
  | 'firstTokenMs'
  | 'model'
  | 'requestedModel'
  | 'provider'
  | 'attempts'
  | 'failedAttempts'
  | 'inputTokens'
  | 'outputTokens'
  | 'finish'
  | 'error'
  | 'cause'
  | 'trace'
  | 'session'
  | 'agent'
  | 'parentAgent'
  | 'cost'
  | 'endUser'
> & {
  /** For its explanation; absent if the request had no exchange. */
  readonly exchange?: Exchange
}

/** Usage of model calls that count although the exchange failed and delivers none of their output. */
interface ChargedUsage {
  readonly id: string
  readonly usage: ResponseUsage
}

/** The end of an exchange, for the HTTP or WebSocket code that has to answer. */
export type Outcome =
  /** Everything was sent through the sink, including a failure after the commit point. */
  (
    | {
        readonly answered: true
        /** The failure of the exchange: sent in the stream, or to nobody because the client has left. */
        readonly refusal?: GatewayError
      }
    /** Nothing was written to the sink; the caller of the gateway answers with the error envelope. */
    | {
        readonly answered: false
        readonly error: GatewayError
        readonly metadata: GatewayMetadata | null
        readonly charged?: ChargedUsage | null
      }
  ) & { readonly summary?: ExchangeSummary }
