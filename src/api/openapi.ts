/**
 * GET /openapi.json: the OpenAPI document, generated once per thread from the table of operations. GET /docs renders it
 * for people.
 */
import { sendWritten, shortDigest, type WrittenDocument } from './models/models.ts'
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
import { rowStart } from './operation-rows.ts'

/** The description of the given operations. */
export class InterfaceDocument {
  #rows: readonly DescribedRow[] = []
  #document: WrittenDocument | null = null

  describe(rows: readonly DescribedRow[]): void {
    this.#rows = rows
    this.#document = null
  }

  /** Created on first use, which takes about 60 ms once. */
  get serialized(): WrittenDocument {
    if (this.#document === null) {
      const json = Buffer.from(JSON.stringify(createDocument(this.#rows)))
      this.#document = { json, etag: `"${shortDigest(json)}"` }
    }
    return this.#document
  }
}

export function showInterface(document: InterfaceDocument): OpenHandler {
  return (request, reply) => sendWritten(request, reply, document.serialized)
}

/** Settings of the reference on the public port. */
export interface ReferenceTerms {
  /** True if the port uses TLS itself. */
  readonly isSecure: boolean
}

/** These rows are not in the OpenAPI document that they show. */
export function referenceRows(document: InterfaceDocument, terms: ReferenceTerms): readonly Operation[] {
  const reference = new Reference(JSON.parse(document.serialized.json.toString()) as JsonSchema)
  const script = { json: filterScript(), etag: null }
  const common = { bases: ['', '/v1', '/api/v1'], key: 'none', accept: 'none', bodyLimitBytes: 0 } as const
  return [
    {
      ...rowStart('GET /docs', 'showReference', 'Read the reference'),
      ...common,
      handler(request: Parameters<OpenHandler>[0], reply: Reply) {
        // A proxy in front may use TLS for this port. This only affects the text of this answer.
        const isSecure = terms.isSecure || request.headers.get('x-forwarded-proto') === 'https'
        protect(reply)
        sendWritten(request, reply, reference.page(readerUrl(request.host, isSecure)), PAGE_TYPE)
      },
    },
    {
      ...rowStart(`GET ${FILTER_PATH}`, 'getReferenceScript', 'Get the script of the reference'),
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
