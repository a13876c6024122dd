/** The forms in which clients write the requests of a batch. Pure. */
import { fieldPath } from '../../../protocol/json/schema.ts'
import { BATCH_FIELDS } from '../../../protocol/management/batch-creation.ts'

/** A form in which the requests of a batch are written. */
export interface RequestForm {
  /** The field with the body of a request. */
  readonly body: 'body' | 'params'
  /** Further fields of a request, whose values are checked and not stored. */
  readonly extraFields: readonly ('method' | 'url')[]
  /** True if the bytes are the requests themselves, one per line; otherwise a document with a list of them. */
  readonly isLines: boolean
  /** True if requests may have different models. */
  readonly mixesModels: boolean
  /** The fields of the document besides `requests`. */
  readonly fields: ReadonlySet<string>
}

/**
 * `requests`: the form of POST /batches. `lines`: the file of a batch client of OpenAI. `params`: the form of the
 * Messages API.
 */
export const REQUEST_FORMS = {
  requests: { body: 'body', extraFields: [], isLines: false, mixesModels: false, fields: BATCH_FIELDS },
  lines: {
    body: 'body',
    extraFields: ['method', 'url'],
    isLines: true,
    mixesModels: false,
    fields: BATCH_FIELDS,
  },
  params: { body: 'params', extraFields: [], isLines: false, mixesModels: true, fields: new Set<string>() },
} as const satisfies Readonly<Record<string, RequestForm>>
export type RequestFormName = keyof typeof REQUEST_FORMS

/** The position of a request, or of one of its fields, in the words of the form's clients: lines begin with 1. */
export function requestPath(form: RequestFormName, number: number, field = ''): string {
  if (!REQUEST_FORMS[form].isLines) {
    const request = `requests[${number}]`
    return field === '' ? request : fieldPath(request, field)
  }
  const line = `input_file_id: line ${number + 1}`
  return field === '' ? line : `${line}, ${fieldPath('', field)}`
}

/** The path of the model in a request. */
export function modelPath(form: RequestFormName, number: number): string {
  return `${requestPath(form, number, REQUEST_FORMS[form].body)}.model`
}
