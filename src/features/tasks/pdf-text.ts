/**
 * Extracts the text of a PDF, page by page. Documents may be hostile: size, pages, memory and length of the text are
 * bounded, no code in them runs, and the deadline of the pool ends slow work. Pure; task worker, bulk.
 */
import { getDocumentProxy } from 'unpdf'
import { isError } from '../../base/errors.ts'
import { DOCUMENT_MAX_BYTES, DOCUMENT_MAX_MIB, DOCUMENT_MAX_PAGES } from '../../protocol/limits.ts'
import { TaskFailure } from './task.ts'

interface PdfTextInput {
  readonly bytes: Uint8Array
  /** Default and maximum: DOCUMENT_MAX_PAGES. */
  readonly pagesMax?: number
}

interface PdfTextOutput {
  /** One text per page; empty for a page of pictures. */
  readonly pages: readonly string[]
}

/** Limit for all pages together: more than any model reads. */
const MAX_CHARS = 16 * 1024 * 1024

/** A page takes a few hundred kilobytes, a large drawing a few megabytes; the document itself counts too. */
const BUFFER_LIMITS: BufferLimits = {
  singleBytes: 32 * 1024 * 1024,
  countedBytes: 1024 * 1024,
  totalBytes: 256 * 1024 * 1024,
}

type Document = Awaited<ReturnType<typeof getDocumentProxy>>

/** One page with one letter; readers find the objects of a document without a table. */
const SAMPLE_PDF = `%PDF-1.4
1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj
2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj
3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Contents 4 0 R/Resources<</Font<</F 5 0 R>>>>>>endobj
4 0 obj<</Length 20>>stream
BT /F 9 Tf (a) Tj ET
endstream endobj
5 0 obj<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>endobj
trailer<</Root 1 0 R>>
`

/**
 * Loads the task with all of its code, by reading a sample. The library loads most of its code with its first document,
 * which would take a tenth of a second longer, and could be ended while modules are linked.
 */
export async function loadPdfText(): Promise<typeof pdfText> {
  await pdfText({ bytes: new Uint8Array(Buffer.from(SAMPLE_PDF)) })
  return pdfText
}

/** @throws TaskFailure `not_a_pdf`, `encrypted`, `broken`, `too_large` or `too_many_pages` */
export async function pdfText({
  bytes,
  pagesMax = DOCUMENT_MAX_PAGES,
}: PdfTextInput): Promise<PdfTextOutput> {
  if (bytes.byteLength > DOCUMENT_MAX_BYTES)
    throw new TaskFailure('too_large', `the document is larger than ${DOCUMENT_MAX_MIB} MiB`)
  if (!hasHeader(bytes)) throw new TaskFailure('not_a_pdf', 'the document is not a PDF')
  return await withBoundedBuffers(BUFFER_LIMITS, async check => {
    const document = await open(bytes)
    try {
      const pageLimit = Math.min(pagesMax, DOCUMENT_MAX_PAGES)
      if (document.numPages > pageLimit)
        throw new TaskFailure('too_many_pages', `the document has more than ${pageLimit} pages`)
      return { pages: await readPages(document, check) }
    } finally {
      await document.destroy()
    }
  })
}

async function readPages(document: Document, check: () => void): Promise<string[]> {
  const pages: string[] = []
  let chars = 0
  for (let number = 1; number <= document.numPages; number++) {
    const text = await readPage(document, number)
    check()
    chars += text.length
    if (chars > MAX_CHARS) throw new TaskFailure('too_large', 'the document has too much text')
    pages.push(text)
  }
  return pages
}

async function readPage(document: Document, number: number): Promise<string> {
  try {
    const page = await document.getPage(number)
    const { items } = await page.getTextContent()
    let text = ''
    for (const item of items) {
      if (!('str' in item)) continue
      text += item.hasEOL ? `${item.str}\n` : item.str
      if (text.length > MAX_CHARS) break
    }
    page.cleanup()
    return text.trim()
  } catch {
    throw new TaskFailure('broken', `page ${number} of the document cannot be read`)
  }
}

async function open(bytes: Uint8Array): Promise<Document> {
  try {
    // The parser takes ownership of its input, so it gets a copy. `verbosity` 0: errors only, no warnings.
    return await getDocumentProxy(bytes.slice(), {
      verbosity: 0,
      stopAtErrors: false,
      disableAutoFetch: true,
      disableStream: true,
      useSystemFonts: false,
      maxImageSize: 0,
    })
  } catch (error) {
    if (isError(error) && error.name === 'PasswordException')
      throw new TaskFailure('encrypted', 'the document is encrypted')
    throw new TaskFailure('broken', 'the document cannot be read')
  }
}

/** True if the header is near the beginning: readers accept some other bytes before it. */
function hasHeader(bytes: Uint8Array): boolean {
  return Buffer.from(bytes.buffer, bytes.byteOffset, Math.min(bytes.byteLength, 1024)).includes('%PDF-')
}

/**
 * Limits for the memory that a library allocates. The heap limit of a worker does not count buffers, so a small
 * document could fill the machine. While the work runs, constructors that count replace the constructors of buffers.
 */
interface BufferLimits {
  /** Limit for one buffer. */
  readonly singleBytes: number
  /** Limit for all buffers larger than `countedBytes`, from the beginning of the work. */
  readonly totalBytes: number
  readonly countedBytes: number
}

/** Counts buffers, and remembers that there were too many, because libraries swallow errors. */
class BufferCount {
  readonly #limits: BufferLimits
  #bytes = 0
  exceeded = false

  constructor(limits: BufferLimits) {
    this.#limits = limits
  }

  /**
   * A buffer of `bytes`, of which `newBytes` are new.
   * @throws RangeError as for a buffer that does not fit in memory.
   */
  add(bytes: number, newBytes = bytes): void {
    if (bytes > this.#limits.countedBytes) this.#bytes += newBytes
    if (bytes <= this.#limits.singleBytes && this.#bytes <= this.#limits.totalBytes) return
    this.exceeded = true
    throw new RangeError('the buffer does not fit')
  }
}

/**
 * Runs the work with counted buffers; `check` throws once there were too many. A worker of this pool does one job at a
 * time, so no other job counts.
 * @throws TaskFailure `too_large`, also if the work swallowed the error.
 */
async function withBoundedBuffers<Output>(
  limits: BufferLimits,
  work: (check: () => void) => Promise<Output>,
): Promise<Output> {
  const count = new BufferCount(limits)
  const check = (): void => {
    if (count.exceeded) throw new TaskFailure('too_large', 'the document expands to too many bytes')
  }
  const { Uint8Array: originalArray, DecompressionStream: originalStream } = globalThis
  globalThis.Uint8Array = countArrays(originalArray, count)
  globalThis.DecompressionStream = countStreams(originalStream, count)
  try {
    const output = await work(check)
    check()
    return output
  } catch (error) {
    check()
    throw error
  } finally {
    globalThis.Uint8Array = originalArray
    globalThis.DecompressionStream = originalStream
  }
}

function countArrays(original: Uint8ArrayConstructor, count: BufferCount): Uint8ArrayConstructor {
  const countingArray: Uint8ArrayConstructor = new Proxy(original, {
    construct(target, args: readonly unknown[], newTarget) {
      if (typeof args[0] === 'number') count.add(args[0])
      return Reflect.construct(target, args, newTarget === countingArray ? target : newTarget) as object
    },
  })
  return countingArray
}

function countStreams(original: typeof DecompressionStream, count: BufferCount): typeof DecompressionStream {
  return new Proxy(original, {
    construct(target, args: ConstructorParameters<typeof DecompressionStream>) {
      const { readable, writable } = new target(...args)
      let bytes = 0
      const counter = new TransformStream<Uint8Array, Uint8Array>({
        transform(chunk, controller) {
          bytes += chunk.byteLength
          count.add(bytes, chunk.byteLength)
          controller.enqueue(chunk)
        },
      })
      return { readable: readable.pipeThrough(counter), writable }
    },
  })
}
