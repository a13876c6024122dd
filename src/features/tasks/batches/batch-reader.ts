/**
 * Reads the requests of a batch one by one, from the body of POST /batches with its keys in any order, or from other
 * forms that clients use. Its state between two requests is plain data, so that another worker can continue. Task
 * worker.
 */
import { fieldPath, isStorable, withinCharacters } from '../../../protocol/json/schema.ts'
import { MODEL_MAX_CHARS } from '../../../protocol/limits.ts'
import {
  CUSTOM_ID_MAX_CHARS,
  FOREIGN_FIELDS,
  fieldProblem,
} from '../../../protocol/management/batch-creation.ts'
import { BatchFault, type BatchProgress, differingModel, type FoundRequest } from './batch-progress.ts'
import {
  type ByteSource,
  CLOSE_BRACE,
  CLOSE_BRACKET,
  COLON,
  COMMA,
  END,
  JsonFault,
  type JsonPosition,
  JsonScanner,
  OPEN_BRACE,
  OPEN_BRACKET,
  QUOTE,
} from './json-scanner.ts'
import {
  modelPath,
  REQUEST_FORMS,
  type RequestForm,
  type RequestFormName,
  requestPath,
} from './request-forms.ts'

/** Maximum bytes of a field besides `requests`: more than any valid one has. */
const MAX_FIELD_BYTES = 64 * 1024
/** A character takes up to twelve bytes: two escapes. */
const ESCAPED_CHARACTER_BYTES = 12
const MAX_CUSTOM_ID_BYTES = ESCAPED_CHARACTER_BYTES * CUSTOM_ID_MAX_CHARS
const MAX_MODEL_BYTES = ESCAPED_CHARACTER_BYTES * MODEL_MAX_CHARS
/** No known field has a longer name. */
const MAX_NAME_BYTES = 1024

interface ReadOptions {
  /** Called for each request, in order. */
  readonly onRequest: (request: FoundRequest) => void
  /** Called after each request; true stops the reader. */
  readonly isEnough: () => boolean
}

export class BatchReader {
  readonly #scanner: JsonScanner
  readonly #options: ReadOptions
  readonly #formName: RequestFormName
  readonly #form: RequestForm
  #before: BatchProgress['before']
  readonly #fields: Map<string, unknown>
  #firstRequest: JsonPosition | null
  #requests: number
  #model: BatchProgress['model']
  #withoutModel: number | null
  /** The path of the current field in the document or in the request. */
  #currentField = ''
  /** The current request; -1: none. */
  #currentNumber = -1

  constructor(source: ByteSource, progress: BatchProgress, terms: ReadOptions) {
    this.#scanner = new JsonScanner(source, progress.position)
    this.#options = terms
    this.#formName = progress.form
    this.#form = REQUEST_FORMS[progress.form]
    this.#before = progress.before
    this.#fields = new Map(Object.entries(progress.fields))
    this.#firstRequest = progress.firstRequest
    this.#requests = progress.requests
    this.#model = progress.model
    this.#withoutModel = progress.withoutModel
  }

  /** Reads until `isEnough` returns true, or to the end: then the progress is before `end`. @throws BatchFault */
  read(): BatchProgress {
    try {
      if (this.#before === 'requests') {
        if (this.#form.isLines) this.#readLines()
        else this.#readRequests()
      } else if (this.#before === 'start') this.#readDocument()
    } catch (thrown) {
      throw thrown instanceof JsonFault ? this.#jsonError(thrown) : thrown
    }
    return {
      form: this.#formName,
      position: this.#scanner.position,
      before: this.#before,
      fields: Object.fromEntries(this.#fields),
      firstRequest: this.#firstRequest,
      requests: this.#requests,
      model: this.#model,
      withoutModel: this.#withoutModel,
    }
  }

  #readDocument(): void {
    const scanner = this.#scanner
    scanner.skipMark()
    const first = scanner.peek()
    if (first === END) throw new BatchFault('invalid_request', 'The request body is empty')
    if (first !== OPEN_BRACE) {
      // Reports invalid JSON with its own error.
      scanner.skip()
      throw new BatchFault('invalid_request', 'body: must be an object')
    }
    scanner.advance()
    if (scanner.peek() === CLOSE_BRACE) this.#endDocument()
    else this.#readFields()
  }

  /** Reads fields of the document, from a name to the end or into `requests`. */
  #readFields(): void {
    for (;;) {
      this.#currentField = ''
      const name = this.#name()
      this.#currentField = name
      if (name === 'requests') {
        this.#beginRequests()
        return
      }
      this.#readField(name)
      if (this.#isLast(CLOSE_BRACE)) {
        this.#endDocument()
        return
      }
    }
  }

  #readField(name: string): void {
    if (this.#fields.has(name)) throw this.#problem('must not be given twice')
    const value = this.#scanner.value(MAX_FIELD_BYTES)
    const foreign = FOREIGN_FIELDS.get(name)
    const { fields } = this.#form
    if (foreign !== undefined && value !== null) throw this.#problem(foreign)
    if (foreign === undefined && !fields.has(name)) {
      const knownFields = [...fields, 'requests'].join(', ')
      throw this.#problem(`is not a known field; the known ones are ${knownFields}`)
    }
    if (value === undefined) throw this.#problem(`must have at most ${MAX_FIELD_BYTES} bytes`)
    const problem = fieldProblem(name, value)
    if (problem !== null) throw new BatchFault('invalid_request', problem)
    this.#fields.set(name, value)
  }

  #endDocument(): void {
    this.#scanner.advance()
    this.#currentField = ''
    if (this.#scanner.peek() !== END) {
      throw new BatchFault('invalid_request', `body: must end after the object (${this.#positionText()})`)
    }
    this.#before = 'end'
  }

  // Requests

  /** Reads lines, from the beginning of one. Only white space may separate them. */
  #readLines(): void {
    const scanner = this.#scanner
    if (this.#requests === 0) {
      scanner.skipMark()
      if (scanner.peek() === END)
        throw new BatchFault('invalid_request', 'input_file_id: the file has no lines')
    }
    for (;;) {
      this.#readRequest()
      if (scanner.peek() === END) {
        this.#before = 'end'
        return
      }
      if (this.#options.isEnough()) return
    }
  }

  #beginRequests(): void {
    const scanner = this.#scanner
    if (this.#firstRequest !== null) throw this.#problem('must not be given twice')
    if (scanner.peek() !== OPEN_BRACKET) {
      scanner.skip()
      throw this.#problem('must be an array')
    }
    scanner.advance()
    if (scanner.peek() === CLOSE_BRACKET) throw this.#problem('must have at least 1 element')
    this.#firstRequest = scanner.position
    this.#before = 'requests'
    this.#readRequests()
  }

  /** Reads requests and the fields after them, from the beginning of a request. */
  #readRequests(): void {
    const scanner = this.#scanner
    for (;;) {
      this.#readRequest()
      this.#currentField = 'requests'
      const isLast = this.#isLast(CLOSE_BRACKET)
      if (isLast) {
        scanner.advance()
        break
      }
      if (this.#options.isEnough()) return
    }
    if (this.#isLast(CLOSE_BRACE)) this.#endDocument()
    else this.#readFields()
  }

  #readRequest(): void {
    this.#currentNumber = this.#requests
    this.#currentField = ''
    const scanner = this.#scanner
    const { body, extraFields } = this.#form
    const knownFields = ['custom_id', ...extraFields, body]
    if (scanner.peek() !== OPEN_BRACE) {
      scanner.skip()
      throw this.#problem(`must be an object with ${knownFields.join(', ')}`)
    }
    scanner.advance()
    let customId: string | null = null
    let start = -1
    let end = -1
    const seenFields = new Set<string>()
    if (scanner.peek() !== CLOSE_BRACE) {
      do {
        this.#currentField = ''
        const name = this.#name()
        this.#currentField = name
        if (name === 'custom_id') {
          if (customId !== null) throw this.#problem('must not be given twice')
          customId = this.#readCustomId()
        } else if (name === body) {
          if (start !== -1) throw this.#problem('must not be given twice')
          if (scanner.peek() !== OPEN_BRACE) {
            scanner.skip()
            throw this.#problem('must be an object')
          }
          start = scanner.offset
          this.#readBody()
          end = scanner.offset
        } else if (extraFields.some(extra => extra === name)) {
          if (seenFields.has(name)) throw this.#problem('must not be given twice')
          seenFields.add(name)
          this.#checkField(name)
        } else throw this.#problem(`is not a known field; the known ones are ${knownFields.join(', ')}`)
      } while (!this.#isLast(CLOSE_BRACE))
    }
    scanner.advance()
    this.#currentField = 'custom_id'
    if (customId === null) throw this.#problem(`is required and must be ${CUSTOM_ID_RULE}`)
    this.#currentField = body
    if (start === -1) throw this.#problem('is required and must be an object')
    for (const name of extraFields) {
      this.#currentField = name
      if (!seenFields.has(name)) throw this.#problem('is required')
    }
    this.#options.onRequest({ number: this.#currentNumber, customId, from: start, to: end })
    this.#requests++
    this.#currentNumber = -1
  }

  /** Checks the method of a line, or its url, which must be the endpoint of the batch. */
  #checkField(name: string): void {
    const expectedValue = name === 'method' ? 'POST' : this.#fields.get('endpoint')
    // When the file is read again, the fields of the batch are missing, but all lines were checked before.
    if (this.#scanner.value(MAX_FIELD_BYTES) === expectedValue || expectedValue === undefined) return
    throw this.#problem(
      `must be ${String(expectedValue)}${name === 'method' ? '' : ', the endpoint of the batch'}`,
    )
  }

  #readCustomId(): string {
    const scanner = this.#scanner
    if (scanner.peek() !== QUOTE) {
      scanner.skip()
      throw this.#problem(`must be ${CUSTOM_ID_RULE}`)
    }
    const id = scanner.text(MAX_CUSTOM_ID_BYTES)
    if (id === null || id === '' || !withinCharacters(id, CUSTOM_ID_MAX_CHARS) || !isStorable(id)) {
      throw this.#problem(`must be ${CUSTOM_ID_RULE}`)
    }
    return id
  }

  /** Skips a body, but reads its `model`. */
  #readBody(): void {
    const scanner = this.#scanner
    scanner.advance()
    let model: string | null = null
    if (scanner.peek() !== CLOSE_BRACE) {
      do {
        const name = scanner.text(MAX_NAME_BYTES)
        scanner.expect(COLON)
        // If there are two, parsers use the last one.
        if (name === 'model') model = this.#readModel()
        else scanner.skip()
      } while (!this.#isLast(CLOSE_BRACE))
    }
    scanner.advance()
    this.#noteModel(model)
  }

  /** Null for a value that is no string, which the check of the body reports. */
  #readModel(): string | null {
    const scanner = this.#scanner
    if (scanner.peek() !== QUOTE) {
      scanner.skip()
      return null
    }
    const model = scanner.text(MAX_MODEL_BYTES)
    if (model !== null && withinCharacters(model, MODEL_MAX_CHARS)) return model
    this.#currentField = MODEL_PATH
    throw this.#problem(`must have at most ${MODEL_MAX_CHARS} characters`)
  }

  #noteModel(model: string | null): void {
    const number = this.#currentNumber
    if (model === null) this.#withoutModel ??= number
    else if (this.#model === null) this.#model = { name: model, number }
    else if (model !== this.#model.name && !this.#form.mixesModels)
      throw differingModel(this.#formName, number)
  }

  // Parts of documents and requests

  /** The name of a field, up to its value. @throws JsonFault, BatchFault */
  #name(): string {
    const name = this.#scanner.text(MAX_NAME_BYTES)
    this.#scanner.expect(COLON)
    if (name === null) throw this.#problem('must not have a field with such a long name')
    return name
  }

  /** Skips a comma. Returns true if the bracket comes instead, which stays the next byte. @throws JsonFault */
  #isLast(bracket: number): boolean {
    if (this.#scanner.peek() === bracket) return true
    this.#scanner.expect(COMMA)
    return false
  }

  #problem(text: string): BatchFault {
    return new BatchFault('invalid_request', `${this.#path()}: ${text}`)
  }

  #path(): string {
    if (this.#currentNumber === -1)
      return this.#currentField === '' ? 'body' : fieldPath('', this.#currentField)
    if (this.#currentField === MODEL_PATH) return modelPath(this.#formName, this.#currentNumber)
    return requestPath(this.#formName, this.#currentNumber, this.#currentField)
  }

  #jsonError({ kind, position }: JsonFault): BatchFault {
    const { isLines } = this.#form
    if (kind === 'utf8') {
      const source = isLines ? 'input_file_id: the file' : 'The request body'
      return new BatchFault('invalid_request', `${source} is not valid UTF-8`)
    }
    const end = kind === 'ends' ? `: the ${isLines ? 'file' : 'body'} ends too early` : ''
    return new BatchFault(
      'invalid_request',
      `${this.#path()}: is not valid JSON${end} (${positionText(position)})`,
    )
  }

  #positionText(): string {
    return positionText(this.#scanner.position)
  }
}

/** Path of the model in the body of a request. */
const MODEL_PATH = 'body.model'

const CUSTOM_ID_RULE = `a string of 1 to ${CUSTOM_ID_MAX_CHARS} characters; it must not contain NUL characters or broken Unicode`

function positionText({ offset, line }: JsonPosition): string {
  return `line ${line}, byte ${offset}`
}
