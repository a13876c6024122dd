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
  readonly id: string
  readonly host: string
  readonly watch: Stopwatch
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
    this.id = admission.id
    this.watch = admission.watch
    this.host = headers.get('host') ?? ''
    this.headers = headers
    this.params = decodeParams(match.params)
    this.query = new URLSearchParams(query)
    this.body = body
    this.key = key
  }

  get signal(): AbortSignal {
    return this.#admission.signal
  }
}
