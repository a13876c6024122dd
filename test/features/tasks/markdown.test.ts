/** Document trees as Markdown for models. */
import { parseHTML } from 'linkedom'
import t from 'tap'
import { type MarkdownNode, markdownOf } from '../../../src/features/tasks/markdown.ts'

const CASES: readonly (readonly [name: string, html: string, markdown: string])[] = [
  ['nothing', ' <p> </p><div><b> </b></div> ', ''],
  ['words', ' just\n  words ', 'just words'],
  ['paragraphs', '<p>a</p>\n<p>b <b>c</b>\nd</p>', 'a\n\nb **c** d'],
  ['boxes in boxes', '<div><div>a<div>b</div></div>c</div>', 'a\n\nb\n\nc'],
  ['headings', '<h1>A <em>b</em></h1><h3>C<br>d</h3><h2> </h2>', '# A _b_\n\n### C d'],
  ['line ends', '<p>a<br> b <br/>c<br></p>', 'a\nb\nc'],
  ['a rule', 'a<hr>b', 'a\n\n---\n\nb'],
  ['marks keep blanks outside', 'a<b> b </b>c<i></i> <strong>d</strong>', 'a **b** c **d**'],
  ['marks around blocks', '<b><p>a</p><p>b</p></b>', 'a\n\nb'],
  [
    'links',
    '<a href="https://x.y/">a <b>b</b></a> <a href="https://x.y/"> </a><a>c</a>',
    '[a **b**](https://x.y/) c',
  ],
  [
    'a link around blocks',
    '<a href="https://x.y/"><h3>Title</h3><p>text</p></a>',
    '[Title text](https://x.y/)',
  ],
  ['code', 'use <code>a  b</code>, <code>`</code> or <kbd>x``y</kbd>', 'use `a b`, `` ` `` or ```x``y```'],
  ['code in lines', '<pre><code class="language-ts">a\n  b &lt; c\n</code></pre>', '```ts\na\n  b < c\n```'],
  ['code with fences', '<pre>```\nx\n```</pre>', '````\n```\nx\n```\n````'],
  ['a list', '<ul>\n<li>a</li>\n<li><p>b</p></li><li> </li></ul>', '- a\n- b'],
  ['a numbered list', '<ol><li>a</li><li>b</li></ol>', '1. a\n2. b'],
  [
    'lists in lists',
    '<ol><li>a<ul><li>b<ul><li>c</li></ul></li></ul></li><li>d</li></ol>',
    '1. a\n   - b\n     - c\n2. d',
  ],
  ['a list in a list without an item', '<ul><li>a</li><ul><li>b</li></ul></ul>', '- a\n- - b'],
  ['a quotation', '<blockquote><p>a</p><p>b<br>c</p></blockquote>', '> a\n>\n> b\n> c'],
  ['definitions', '<dl><dt>a</dt><dd>b</dd></dl>', 'a\n\nb'],
  [
    'a table',
    '<table><caption>T</caption><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td>1</td><td><p>2</p><p>3</p></td></tr><tr></tr></tbody></table>',
    'T\n\n| a | b |\n| --- | --- |\n| 1 | 2 3 |',
  ],
  [
    'a table with headings of columns and rows',
    '<table><tr><td></td><th>a</th></tr><tr><th>b</th><td>1</td></tr><tr><th>c</th><th>d</th></tr></table>',
    '|  | a |\n| --- | --- |\n| b | 1 |\n| c | d |',
  ],
  [
    'a table of facts',
    '<table><tr><th>a</th><td>1</td></tr><tr><th>b</th><td>2</td></tr></table>',
    '| a | 1 |\n| b | 2 |',
  ],
  ['a table in a table', '<table><tr><td><table><tr><td>a</td></tr></table></td></tr></table>', '| | a | |'],
  ['unknown elements', '<x-card>a <span>b</span></x-card><!-- c -->', 'a b'],
  ['punctuation', '<p>1. *a* _b_ [c] # d</p>', '1. *a* _b_ [c] # d'],
]

for (const [name, html, markdown] of CASES) {
  t.test(`${name}: as Markdown`, async t => {
    const { document } = parseHTML(`<!doctype html><html><body>${html}</body></html>`)
    t.equal(markdownOf(document.body as unknown as MarkdownNode), markdown)
  })
}
