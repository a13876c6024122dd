/**
 * GET /openapi.json: the OpenAPI document, generated once per thread from the table of operations. GET /docs renders it
 * for people.
 */
import { createHash } from 'node:crypto'
import { sendWritten, type WrittenDocument } from './models/models.ts'
import { createDocument, type DescribedRow } from './openapi/document.ts'
import type { JsonSchema } from './openapi/json-schema.ts'
import {
  FILTER_PATH,
  filterScript,
  PAGE_TYPE,
  REFERENCE_HEADERS,
  Reference,
  readerUrl,
  SCRIPT_TYPE,
} from './openapi/reference/reference.ts'
import type { OpenHandler, Operation, Reply } from './operation.ts'
import { described } from './operation-rows.ts'

/** The description of the operations that it was given. */
export class InterfaceDocument {
  #rows: readonly DescribedRow[] = []
  #written: WrittenDocument | null = null

  describe(rows: readonly DescribedRow[]): void {
    this.#rows = rows
    this.#written = null
  }

  /** Made when it is first asked for, which takes some 60 ms once. */
  get written(): WrittenDocument {
    if (this.#written === null) {
      const json = Buffer.from(JSON.stringify(createDocument(this.#rows)))
      const digest = createHash('sha256').update(json).digest('hex').slice(0, 16)
      this.#written = { json, etag: `"${digest}"` }
    }
    return this.#written
  }
}

export function showInterface(document: InterfaceDocument): OpenHandler {
  return (request, reply) => sendWritten(request, reply, document.written)
}

/** The reference on the public port. */
export interface ReferenceTerms {
  /** The port speaks TLS itself. */
  readonly isSecure: boolean
}

/** They are not in the OpenAPI document, which they show. */
export function referenceRows(document: InterfaceDocument, terms: ReferenceTerms): readonly Operation[] {
  const reference = new Reference(JSON.parse(document.written.json.toString()) as JsonSchema)
  const script = { json: filterScript(), etag: null }
  const common = { bases: ['', '/v1', '/api/v1'], key: 'none', accept: 'none', bodyLimitBytes: 0 } as const
  return [
    {
      ...described('GET /docs', 'showReference', 'Read the reference'),
      ...common,
      handler(request: Parameters<OpenHandler>[0], reply: Reply) {
        // A proxy in front may speak TLS in the place of this port. It changes the text of this one answer.
        const isSecure = terms.isSecure || request.headers.get('x-forwarded-proto') === 'https'
        protect(reply)
        sendWritten(request, reply, reference.page(readerUrl(request.host, isSecure)), PAGE_TYPE)
      },
    },
    {
      ...described(`GET ${FILTER_PATH}`, 'getReferenceScript', 'Get the script of the reference'),
      ...common,
      handler(request: Parameters<OpenHandler>[0], reply: Reply) {
        protect(reply)
        sendWritten(request, reply, script, SCRIPT_TYPE)
      },
    },
  ]
}

function protect(reply: Reply): void {
  for (const [name, value] of Object.entries(REFERENCE_HEADERS)) reply.header(name, value)
}
