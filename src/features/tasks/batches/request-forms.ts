/** The forms in which clients write the requests of a batch. Pure. */
import { fieldPath } from '../../../protocol/json/schema.ts'
import { BATCH_FIELDS } from '../../../protocol/management/batch-creation.ts'

/** How the requests of a batch are written. */
export interface RequestForm {
  /** The field with the body of a request. */
  readonly body: 'body' | 'params'
  /** Further fields of a request, whose values are checked and not kept. */
  readonly more: readonly ('method' | 'url')[]
  /** The bytes are the requests themselves, one a line; otherwise a document with a list of them. */
  readonly isLines: boolean
  /** Each request may name another model. */
  readonly mixesModels: boolean
  /** The fields of the document beside `requests`. */
  readonly fields: ReadonlySet<string>
}

/**
 * `requests`: as POST /batches takes them. `lines`: the file of a batch client of OpenAI. `params`: as the Messages API
 * takes them.
 */
export const REQUEST_FORMS = {
  requests: { body: 'body', more: [], isLines: false, mixesModels: false, fields: BATCH_FIELDS },
  lines: {
    body: 'body',
    more: ['method', 'url'],
    isLines: true,
    mixesModels: false,
    fields: BATCH_FIELDS,
  },
  params: { body: 'params', more: [], isLines: false, mixesModels: true, fields: new Set<string>() },
} as const satisfies Readonly<Record<string, RequestForm>>
export type RequestFormName = keyof typeof REQUEST_FORMS

/** The place of a request, or of a field of it, as clients of the form know it: lines begin with 1. */
export function requestPath(form: RequestFormName, number: number, field = ''): string {
  if (!REQUEST_FORMS[form].isLines) {
    const request = `requests[${number}]`
    return field === '' ? request : fieldPath(request, field)
  }
  const line = `input_file_id: line ${number + 1}`
  return field === '' ? line : `${line}, ${fieldPath('', field)}`
}

/** The place of the model that a request names. */
export function modelPath(form: RequestFormName, number: number): string {
  return `${requestPath(form, number, REQUEST_FORMS[form].body)}.model`
}
