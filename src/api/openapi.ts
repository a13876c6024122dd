/** GET /openapi.json: the OpenAPI document, generated once per thread from the table of operations. */
import { createHash } from 'node:crypto'
import { sendWritten, type WrittenDocument } from './models/models.ts'
import { createDocument, type DescribedRow } from './openapi/document.ts'
import type { OpenHandler } from './operation.ts'

/** The description of the operations that it was given. */
export class InterfaceDocument {
  #rows: readonly DescribedRow[] = []
  #written: WrittenDocument | null = null

  describe(rows: readonly DescribedRow[]): void {
    this.#rows = rows
    this.#written = null
  }

  /** Made when it is first asked for, which takes some 20 ms: a thread asks before it takes requests. */
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
