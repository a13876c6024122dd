/**
 * The progress of reading a batch body, and its errors: plain data, so that another worker can continue. Pure.
 */
import { JSON_START, type JsonPosition } from './json-scanner.ts'
import { modelPath, type RequestFormName } from './request-forms.ts'

/** An error in a batch. The message contains the path of the field, but nothing of its value. */
export class BatchFault extends Error {
  override readonly name = 'BatchFault'
  readonly code: 'invalid_request' | 'unprocessable'

  constructor(code: BatchFault['code'], message: string) {
    super(message)
    this.code = code
  }
}

/** The position of one request of a batch. */
export interface FoundRequest {
  /** From 0. */
  readonly number: number
  readonly customId: string
  /** Offsets of its `body`. */
  readonly from: number
  readonly to: number
}

/** A model, and the first request that names it. */
interface NamedModel {
  readonly name: string
  readonly number: number
}

/** The state of reading a body. Plain data. */
export interface BatchProgress {
  readonly form: RequestFormName
  readonly position: JsonPosition
  /** The part that is read next; `requests`: one of the requests. */
  readonly before: 'start' | 'requests' | 'end'
  /** The values of the fields that were read, by name. */
  readonly fields: Readonly<Record<string, unknown>>
  /** The position of the first request; null if `requests` was not reached yet. */
  readonly firstRequest: JsonPosition | null
  readonly requests: number
  /** Null if no request names a model so far. */
  readonly model: NamedModel | null
  /** The first request without a model; null if each has one. */
  readonly withoutModel: number | null
}

export const BATCH_START: BatchProgress = {
  form: 'requests',
  position: JSON_START,
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
 * The model of a completely read batch. If requests may have different models, it is the model of the first one.
 * @throws BatchFault if there is none, or a request differs
 */
export function modelOf({ form, fields, model, withoutModel }: BatchProgress): string {
  const batchModel = fields['model']
  if (typeof batchModel !== 'string') {
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
  if (model !== null && model.name !== batchModel) throw differingModel(form, model.number)
  return batchModel
}

/** The error of a request that names another model than the ones before it. */
export function differingModel(form: RequestFormName, number: number): BatchFault {
  return new BatchFault(
    'unprocessable',
    `${modelPath(form, number)}: must be the same in the whole batch: a batch has one model`,
  )
}
