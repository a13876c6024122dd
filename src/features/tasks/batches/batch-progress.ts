/**
 * The progress of reading the body of a batch, and its faults: plain data, so that another worker can continue. Pure.
 */
import { JSON_START, type JsonPlace } from './json-scanner.ts'
import { modelPath, type RequestFormName } from './request-forms.ts'

/** A fault of a batch. The message names the field by its path and tells nothing of its value. */
export class BatchFault extends Error {
  override readonly name = 'BatchFault'
  readonly code: 'invalid_request' | 'unprocessable'

  constructor(code: BatchFault['code'], message: string) {
    super(message)
    this.code = code
  }
}

/** The place of one request of a batch. */
export interface FoundRequest {
  /** From 0. */
  readonly number: number
  readonly customId: string
  /** Offsets of its `body`. */
  readonly from: number
  readonly to: number
}

/** A model that a request names, and the first request that does. */
interface NamedModel {
  readonly name: string
  readonly number: number
}

/** How far a body was read. Plain data. */
export interface BatchProgress {
  readonly form: RequestFormName
  readonly place: JsonPlace
  /** `requests`: before one of the requests. */
  readonly before: 'start' | 'requests' | 'end'
  /** Values of fields so far, by name. */
  readonly fields: Readonly<Record<string, unknown>>
  /** Null: `requests` was not there yet. */
  readonly firstRequest: JsonPlace | null
  readonly requests: number
  /** Null: no request names one. */
  readonly model: NamedModel | null
  /** The first request without a model; null: each has one. */
  readonly withoutModel: number | null
}

export const BATCH_START: BatchProgress = {
  form: 'requests',
  place: JSON_START,
  before: 'start',
  fields: {},
  firstRequest: null,
  requests: 0,
  model: null,
  withoutModel: null,
}

/** The start of a file of lines, for a batch with these fields. */
export function fileStart(fields: Readonly<Record<string, unknown>>): BatchProgress {
  return { ...BATCH_START, form: 'lines', before: 'requests', fields, firstRequest: JSON_START }
}

/**
 * The model of a batch that was read to its end: of its first request, where each may have another one.
 * @throws BatchFault when there is none, or another one
 */
export function modelOf({ form, fields, model, withoutModel }: BatchProgress): string {
  const named = fields['model']
  if (typeof named !== 'string') {
    if (model === null) {
      throw new BatchFault(
        'invalid_request',
        'model: is required: name it here, or in the body of every request',
      )
    }
    if (withoutModel === null) return model.name
    throw new BatchFault(
      'invalid_request',
      `${modelPath(form, withoutModel)}: is required, because the batch itself names no model`,
    )
  }
  if (model !== null && model.name !== named) throw otherModel(form, model.number)
  return named
}

/** The fault of a request that names another model than the ones before it. */
export function otherModel(form: RequestFormName, number: number): BatchFault {
  return new BatchFault(
    'unprocessable',
    `${modelPath(form, number)}: must be the same in the whole batch: a batch has one model`,
  )
}
