/**
 * Makes the text of a new file searchable: reads it, splits it into passages and writes them to the Store, outside the
 * event loops that serve requests. Files may be hostile: bytes, text and passages are bounded. Task worker, bulk.
 */
import { DOCUMENT_MAX_BYTES, DOCUMENT_MAX_MIB } from '../../protocol/limits.ts'
import type { FileText, NewPassage } from '../../storage/files.ts'
import type { Store } from '../../storage/store.ts'
import { StoreError } from '../../storage/store-error.ts'
import { fileSource } from './batches/file-source.ts'
import { readFully } from './batches/json-scanner.ts'
import { pdfText } from './pdf-text.ts'
import { searchWords } from './search-words.ts'
import { TaskFailure } from './task.ts'

interface IndexFileInput {
  readonly storageUrl: string
  readonly fileId: string
  /** Bytes in memory, or a part of an open file. */
  readonly source:
    | { readonly content: Uint8Array }
    | { readonly descriptor: number; readonly start: number; readonly bytes: number }
}

const MAX_TEXT_BYTES = 8 * 1024 * 1024
/** Maximum characters of a PDF; further ones are not searchable. */
const MAX_PDF_TEXT_CHARS = 8 * 1024 * 1024
/** About 300 words: a few passages answer a question. */
const PASSAGE_CHARS = 1_600
/** Overlap with the previous passage, so that a sentence at the border is found. */
const OVERLAP_CHARS = 160
const PASSAGES_PER_WRITE = 100
const HEAD_BYTES = 1_024

/**
 * @param open opens a Store for one job
 * @throws TaskFailure of the PDF reader, `too_large`, or `store`
 */
export function createFileIndexing(
  open: (url: string) => Promise<Pick<Store, 'files' | 'close'>>,
): (input: IndexFileInput) => Promise<FileText> {
  return async ({ storageUrl, fileId, source }) => {
    const text = await textOf(source)
    if (text === null || text.trim() === '') return 'none'
    try {
      const store = await open(storageUrl)
      try {
        for (const group of groupsOf(passagesOf(text))) await store.files.addPassages(fileId, group)
      } finally {
        await store.close()
      }
    } catch (thrown) {
      throw thrown instanceof StoreError ? new TaskFailure('store', thrown.code ?? '') : thrown
    }
    return 'indexed'
  }
}

/** Null if the file contains no text that can be read. */
async function textOf(source: IndexFileInput['source']): Promise<string | null> {
  const head = bytesOf(source, HEAD_BYTES)
  const size = 'content' in source ? source.content.byteLength : source.bytes
  if (head.includes('%PDF-')) {
    if (size > DOCUMENT_MAX_BYTES)
      throw new TaskFailure('too_large', `the document is larger than ${DOCUMENT_MAX_MIB} MiB`)
    // Converted, because the reader refuses Node's Buffer subclass.
    const { pages } = await pdfText({ bytes: new Uint8Array(bytesOf(source, size)) })
    return pages.join('\n\n').slice(0, MAX_PDF_TEXT_CHARS)
  }
  // The beginning is checked first, so that most pictures and archives need not be read.
  if (plainText(head, true) === null) return null
  if (size > MAX_TEXT_BYTES) throw new TaskFailure('too_large', 'the text is larger than 8 MiB')
  return plainText(bytesOf(source, size), false)
}

function bytesOf(source: IndexFileInput['source'], count: number): Buffer {
  if ('content' in source) {
    const { buffer, byteOffset, byteLength } = source.content
    return Buffer.from(buffer, byteOffset, Math.min(count, byteLength))
  }
  const { descriptor, start, bytes } = source
  const read = fileSource({ descriptor, bytes: start + bytes })
  const buffer = Buffer.allocUnsafe(Math.min(count, bytes))
  return buffer.subarray(0, readFully(read, buffer, start))
}

/** Null for bytes that are not UTF-8, or contain a NUL, which no text has. */
function plainText(bytes: Buffer, isCut: boolean): string | null {
  if (bytes.includes(0)) return null
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes, { stream: isCut })
  } catch {
    return null
  }
}

/** Splits a text at ends of lines, sentences or words where possible. */
function* passagesOf(text: string): Generator<NewPassage> {
  let number = 0
  for (let start = 0; start < text.length; ) {
    const end = endOf(text, start)
    // A text of a PDF may contain characters that databases refuse.
    const passage = text.slice(start, end).replaceAll('\0', '').toWellFormed()
    const words = searchWords(passage).join(' ')
    if (words !== '') yield { number: number++, text: passage, words }
    if (end === text.length) return
    start = Math.max(end - OVERLAP_CHARS, start + 1)
  }
}

function endOf(text: string, start: number): number {
  const maxEnd = start + PASSAGE_CHARS
  if (maxEnd >= text.length) return text.length
  const half = start + PASSAGE_CHARS / 2
  // A search in the whole text would go back to its beginning.
  const secondHalf = text.slice(half, maxEnd)
  for (const separator of ['\n', '. ', ' ']) {
    const index = secondHalf.lastIndexOf(separator)
    if (index !== -1) return half + index + separator.length
  }
  return maxEnd
}

function* groupsOf(passages: Iterable<NewPassage>): Generator<readonly NewPassage[]> {
  let group: NewPassage[] = []
  for (const passage of passages) {
    group.push(passage)
    if (group.length < PASSAGES_PER_WRITE) continue
    yield group
    group = []
  }
  if (group.length > 0) yield group
}
