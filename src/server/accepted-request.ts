/** An HTTP request as its handler sees it. */
import type { ApiRequest } from '../api/operation.ts'
import type { Stopwatch } from '../metrics/stages.ts'
import type { Admission } from './admission.ts'
import { decodeParams, type Match } from './router.ts'

/** Holds nothing of the connection. */
export class AcceptedRequest<Body, Key> implements ApiRequest<Body, Key> {
  readonly headers: ReadonlyMap<string, string>
  readonly params: ReadonlyMap<string, string>
  readonly query: URLSearchParams
  readonly body: Body
  readonly key: Key
  readonly #admission: Admission

  constructor(
    admission: Admission,
    headers: ReadonlyMap<string, string>,
    match: Match,
    query: string,
    body: Body,
    key: Key,
  ) {
    this.#admission = admission
    this.headers = headers
    this.params = decodeParams(match.params)
    this.query = new URLSearchParams(query)
    this.body = body
    this.key = key
  }

  get id(): string {
    return this.#admission.id
  }

  get host(): string {
    return this.headers.get('host') ?? ''
  }

  get watch(): Stopwatch {
    return this.#admission.watch
  }

  get signal(): AbortSignal {
    return this.#admission.signal
  }
}
