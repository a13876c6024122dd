/*
 * Stream load generator: N closed-loop event streams over raw sockets, epoll, one thread. The same programme as
 * probe.ts at a fraction of its cost per event; run.ts compiles it when a C compiler is there.
 *
 *   probe host=127.0.0.1 port=8080 streams=256 events=100 rampMs=2000 warmMs=500 windowMs=4000 request=FILE
 *         marker='"delta":"@' [abortAfter=20] [stalled=50 stalledRequest=FILE] [spacingMs=20] [recut=1]
 *
 * Prints {"phase":"window"} and {"phase":"end"} when the measured window begins and ends, then one result line.
 * Every delivered text begins "@uid,seq,stamp;": stream number, position, CLOCK_MONOTONIC nanoseconds of its
 * sending. The last text of a stream ends "#xxxxxxxx", the FNV-1a hash of all texts before it.
 *
 * With recut=1 texts may come in other pieces than they were sent in: the text of a stream is then read on over all
 * its pieces, first event and gap are those of pieces, delay counts each byte of text; order and hash prove the same.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define FNV_START 2166136261u
#define FNV_PRIME 16777619u
#define LINE_MAX_BYTES 4096
#define READ_BYTES 65536
#define BUCKETS_PER_DOUBLING 32
#define BUCKETS (BUCKETS_PER_DOUBLING * 40)
#define ABORTS_MAX 20000
/* After a refusal; asking again at once would only be refused again. */
#define PAUSE_NS 250000000ull

typedef struct { uint64_t count, max, bucket[BUCKETS]; } Histogram;

enum { HEAD, SIZE, SIZE_REST, DATA, DATA_END, TRAILER };
/* Where the text of a stream is read on, when it is cut anew. */
enum { TEXT_START, TEXT_HEAD, TEXT_BODY, TEXT_PROOF, TEXT_OVER };
#define TEXT_HEAD_MAX_BYTES 64
#define PROOF_BYTES 9

typedef struct {
  int fd, index, state, running, over, statusOk, aborting, headLength;
  uint64_t chunkLeft, sentNs, lastNs, againNs;
  uint32_t hash;
  int seen, broken, done, refused, lineLength, lineCut;
  int textPart, textHeadLength, pieces;
  uint64_t uid, stampNs;
  char textHead[TEXT_HEAD_MAX_BYTES + 1];
  char head[8192];
  char line[LINE_MAX_BYTES];
} Stream;

static const char *host = "127.0.0.1", *marker = "\"delta\":\"@";
static char *request, *stalledRequest;
static size_t requestLength, stalledLength, markerLength;
static int port, streams = 1, events = 100, rampMs, warmMs, windowMs = 1000, abortAfter, stalled, spacingMs = 20,
  recut;
static struct sockaddr_in address;
static int poller, inWindow, stopping;
/* Refused streams in order of their next try; a ring, since all wait for the same time. */
static Stream **paused;
static int pausedFirst, pausedCount;
static Histogram firstEvent, delay, gap;
static uint64_t deltas, readsWithDeltas, reads, bytes, finished, begun, lost, wrong, errors, refused, windowFinished;
static struct { uint64_t uid, ns; } *aborts;
static int abortCount;

static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static int bucketOf(uint64_t micros) {
  if (micros < BUCKETS_PER_DOUBLING) return (int)micros;
  int power = 63 - __builtin_clzll(micros);
  int at = (power - 4) * BUCKETS_PER_DOUBLING + (int)((micros >> (power - 5)) & (BUCKETS_PER_DOUBLING - 1));
  return at < BUCKETS ? at : BUCKETS - 1;
}

static uint64_t bucketStart(int at) {
  if (at < BUCKETS_PER_DOUBLING) return (uint64_t)at;
  int power = at / BUCKETS_PER_DOUBLING + 4;
  return ((uint64_t)(BUCKETS_PER_DOUBLING + at % BUCKETS_PER_DOUBLING)) << (power - 5);
}

static void noteTimes(Histogram *h, uint64_t ns, uint64_t times) {
  uint64_t micros = ns / 1000;
  h->count += times;
  if (micros > h->max) h->max = micros;
  h->bucket[bucketOf(micros)] += times;
}

static void note(Histogram *h, uint64_t ns) { noteTimes(h, ns, 1); }

static uint64_t quantile(const Histogram *h, double q) {
  uint64_t wanted = (uint64_t)(q * (double)h->count), sum = 0;
  for (int i = 0; i < BUCKETS; i++) {
    sum += h->bucket[i];
    if (sum > wanted) return bucketStart(i);
  }
  return h->max;
}

static char *slurp(const char *path, size_t *length) {
  FILE *file = fopen(path, "rb");
  if (!file) { perror(path); exit(2); }
  char *text = malloc(1 << 20);
  *length = fread(text, 1, 1 << 20, file);
  fclose(file);
  return text;
}

static int connectTo(int smallBuffer) {
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  if (fd < 0) { perror("socket"); exit(2); }
  int one = 1, size = 4096;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (smallBuffer) setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
  connect(fd, (struct sockaddr *)&address, sizeof address);
  return fd;
}

static void ask(Stream *s) {
  s->state = HEAD;
  s->headLength = s->refused = s->seen = s->broken = s->done = s->over = s->lineLength = s->lineCut = 0;
  s->textPart = s->textHeadLength = s->pieces = 0;
  s->hash = FNV_START;
  s->running = 1;
  s->sentNs = s->lastNs = now();
  begun++;
  if (write(s->fd, request, requestLength) != (ssize_t)requestLength) errors++;
}

/* Connects; the request leaves when the socket is writable. */
static void begin(Stream *s) {
  s->fd = connectTo(0);
  s->running = 0;
  struct epoll_event e = {.events = EPOLLOUT, .data.ptr = s};
  epoll_ctl(poller, EPOLL_CTL_ADD, s->fd, &e);
}

static void restart(Stream *s) {
  close(s->fd);
  s->fd = -1;
  if (!stopping) begin(s);
}

static void hashOn(Stream *s, const char *at, const char *end) {
  uint32_t hash = s->hash;
  for (const char *p = at; p < end; p++) hash = (hash ^ (uint8_t)*p) * FNV_PRIME;
  s->hash = hash;
}

static void counted(Stream *s, uint64_t uid) {
  s->seen++;
  if (abortAfter && (s->index & 1) && s->seen == abortAfter) {
    s->aborting = 1;
    if (abortCount < ABORTS_MAX) aborts[abortCount].uid = uid;
  }
}

/* One text: "@uid,seq,stamp;...", up to the closing quote. */
static void text(Stream *s, const char *at, const char *end, uint64_t ns) {
  char *rest;
  uint64_t uid = strtoull(at + 1, &rest, 10);
  uint64_t seq = *rest == ',' ? strtoull(rest + 1, &rest, 10) : ~0ull;
  uint64_t stamp = *rest == ',' ? strtoull(rest + 1, &rest, 10) : 0;
  if (*rest != ';' || seq != (uint64_t)s->seen) s->broken = 1;
  if (seq == (uint64_t)events - 1) {
    const char *mark = memchr(rest, '#', (size_t)(end - rest));
    if (!mark || strtoul(mark + 1, NULL, 16) != s->hash) s->broken = 1;
  } else hashOn(s, at, end);
  if (inWindow) {
    deltas++;
    if (s->seen == 0) note(&firstEvent, ns - s->sentNs);
    else {
      note(&delay, ns > stamp ? ns - stamp : 0);
      note(&gap, ns - s->lastNs);
    }
  }
  s->lastNs = ns;
  counted(s, uid);
}

static void delayed(const Stream *s, uint64_t ns, uint64_t times) {
  if (inWindow) noteTimes(&delay, ns > s->stampNs ? ns - s->stampNs : 0, times);
}

/* The head of a text is whole: whose it is, which one, and when it was sent. */
static void headed(Stream *s, uint64_t ns) {
  char *rest;
  s->textHead[s->textHeadLength] = 0;
  s->uid = strtoull(s->textHead + 1, &rest, 10);
  uint64_t seq = *rest == ',' ? strtoull(rest + 1, &rest, 10) : ~0ull;
  s->stampNs = *rest == ',' ? strtoull(rest + 1, &rest, 10) : 0;
  if (*rest != ';' || seq != (uint64_t)s->seen) s->broken = 1;
  delayed(s, ns, (uint64_t)s->textHeadLength);
  if (seq == (uint64_t)events - 1) s->textPart = TEXT_PROOF;
  else {
    hashOn(s, s->textHead, s->textHead + s->textHeadLength);
    s->textPart = TEXT_BODY;
    if (inWindow) deltas++;
    counted(s, s->uid);
  }
  s->textHeadLength = 0;
}

/* The last text is whole. */
static void proved(Stream *s, uint64_t ns) {
  s->textHead[PROOF_BYTES] = 0;
  if (s->textHead[0] != '#' || strtoul(s->textHead + 1, NULL, 16) != s->hash) s->broken = 1;
  delayed(s, ns, PROOF_BYTES);
  s->textPart = TEXT_OVER;
  if (inWindow) deltas++;
  counted(s, s->uid);
}

/* A piece of the text of a stream, cut anywhere. */
static void piece(Stream *s, const char *at, const char *end, uint64_t ns) {
  if (at == end) return;
  if (inWindow) {
    if (s->pieces == 0) note(&firstEvent, ns - s->sentNs);
    else note(&gap, ns - s->lastNs);
  }
  s->pieces++;
  s->lastNs = ns;
  while (at < end) {
    switch (s->textPart) {
      case TEXT_START:
        if (*at != '@') { s->broken = 1; return; }
        s->textPart = TEXT_HEAD;
        break;
      case TEXT_HEAD:
        if (s->textHeadLength == TEXT_HEAD_MAX_BYTES) { s->broken = 1; return; }
        s->textHead[s->textHeadLength++] = *at++;
        if (at[-1] == ';') headed(s, ns);
        break;
      case TEXT_BODY: {
        const char *next = memchr(at, '@', (size_t)(end - at));
        const char *until = next ? next : end;
        hashOn(s, at, until);
        if (until > at) delayed(s, ns, (uint64_t)(until - at));
        at = until;
        if (next) s->textPart = TEXT_START;
        break;
      }
      case TEXT_PROOF:
        s->textHead[s->textHeadLength++] = *at++;
        if (s->textHeadLength == PROOF_BYTES) proved(s, ns);
        break;
      default:
        s->broken = 1;
        return;
    }
  }
}

static void line(Stream *s, const char *at, size_t length, uint64_t ns) {
  if (length < 6 || memcmp(at, "data:", 5) != 0) return;
  /* A piece begins with any character, a text with the last one of the marker. */
  const char *found = memmem(at, length, marker, recut ? markerLength - 1 : markerLength);
  if (found) {
    const char *start = found + markerLength - 1;
    const char *end = memchr(start, '"', length - (size_t)(start - at));
    if (!end) s->broken = 1;
    else if (recut) piece(s, start, end, ns);
    else text(s, start, end, ns);
    return;
  }
  size_t near = length < 120 ? length : 120;
  if (memmem(at, near, "[DONE]", 6) || memmem(at, near, "\"response.completed\"", 20) ||
      memmem(at, near, "\"message_stop\"", 14))
    s->done = 1;
}

static void payload(Stream *s, const char *at, size_t length, uint64_t ns) {
  if (inWindow) bytes += length;
  while (length > 0) {
    const char *end = memchr(at, '\n', length);
    size_t piece = end ? (size_t)(end - at) : length;
    if (end && s->lineLength == 0) line(s, at, piece, ns);
    else {
      size_t room = LINE_MAX_BYTES - (size_t)s->lineLength;
      size_t taken = piece < room ? piece : room;
      memcpy(s->line + s->lineLength, at, taken);
      s->lineLength += (int)taken;
      if (end) { line(s, s->line, (size_t)s->lineLength, ns); s->lineLength = 0; }
    }
    if (!end) return;
    at += piece + 1;
    length -= piece + 1;
  }
}

/* HTTP/1.1 with a chunked body; anything else is an error of the row. False: give the connection up. */
static int feed(Stream *s, const char *at, size_t length, uint64_t ns) {
  const char *end = at + length;
  while (at < end) {
    switch (s->state) {
      case HEAD: {
        if (s->headLength >= (int)sizeof s->head - 1) return 0;
        s->head[s->headLength++] = *at++;
        if (s->headLength < 4 || memcmp(s->head + s->headLength - 4, "\r\n\r\n", 4) != 0) break;
        s->head[s->headLength] = 0;
        if (memcmp(s->head, "HTTP/1.1 200", 12) != 0) { s->refused = 1; return 0; }
        if (!strcasestr(s->head, "transfer-encoding: chunked")) return 0;
        s->state = SIZE;
        s->chunkLeft = 0;
        break;
      }
      case SIZE: {
        char c = *at++;
        if (c == '\r' || c == ';') s->state = SIZE_REST;
        else {
          int digit = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
          if (digit < 0) return 0;
          s->chunkLeft = s->chunkLeft * 16 + (uint64_t)digit;
        }
        break;
      }
      case SIZE_REST:
        if (*at++ == '\n') { s->state = s->chunkLeft ? DATA : TRAILER; s->lineCut = 0; }
        break;
      case DATA: {
        size_t piece = (size_t)(end - at) < s->chunkLeft ? (size_t)(end - at) : s->chunkLeft;
        payload(s, at, piece, ns);
        at += piece;
        s->chunkLeft -= piece;
        if (s->chunkLeft == 0) s->state = DATA_END;
        break;
      }
      case DATA_END:
        if (*at++ == '\n') s->state = SIZE;
        break;
      case TRAILER:
        if (*at == '\n') { if (s->lineCut == 0) s->over = 1; s->lineCut = 0; }
        else if (*at != '\r') s->lineCut = 1;
        at++;
        break;
    }
  }
  return 1;
}

/* The connection ended or broke: what the stream still owed is lost. Another status than 200 is a refusal. */
static void broken(Stream *s) {
  if (s->refused) {
    if (refused++ == 0) fprintf(stderr, "refused: %.300s\n", s->head);
    s->refused = s->running = 0;
    close(s->fd);
    s->fd = -1;
    s->againNs = now() + PAUSE_NS;
    paused[(pausedFirst + pausedCount++) % streams] = s;
    return;
  }
  if (s->running && !stopping) { errors++; lost += (uint64_t)(events > s->seen ? events - s->seen : 0); }
  s->running = 0;
  restart(s);
}

static void ended(Stream *s) {
  s->running = 0;
  finished++;
  if (inWindow) windowFinished++;
  if (s->seen < events) lost += (uint64_t)(events - s->seen);
  if (s->broken || !s->done || s->seen > events) wrong++;
  if (strcasestr(s->head, "connection: close")) restart(s);
  else if (!stopping) ask(s);
}

static char buffer[READ_BYTES];

static void readable(Stream *s) {
  ssize_t length = recv(s->fd, buffer, sizeof buffer, 0);
  if (length < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (length <= 0) { broken(s); return; }
  uint64_t ns = now(), before = deltas;
  int sound = feed(s, buffer, (size_t)length, ns);
  if (inWindow) { reads++; if (deltas > before) readsWithDeltas++; }
  if (!sound) { s->head[s->headLength < 8191 ? s->headLength : 8191] = 0; broken(s); return; }
  if (s->aborting) {
    s->aborting = 0;
    s->running = 0;
    if (abortCount < ABORTS_MAX) aborts[abortCount++].ns = now();
    restart(s);
    return;
  }
  if (s->over) ended(s);
}

static void printHistogram(const char *name, const Histogram *h) {
  printf(",\"%s\":{\"count\":%llu,\"p50\":%llu,\"p90\":%llu,\"p99\":%llu,\"p999\":%llu,\"max\":%llu}", name,
         (unsigned long long)h->count, (unsigned long long)quantile(h, 0.5), (unsigned long long)quantile(h, 0.9),
         (unsigned long long)quantile(h, 0.99), (unsigned long long)quantile(h, 0.999), (unsigned long long)h->max);
}

int main(int count, char **words) {
  for (int i = 1; i < count; i++) {
    char *value = strchr(words[i], '=');
    if (!value) { fprintf(stderr, "probe: %s: expected name=value\n", words[i]); return 2; }
    *value++ = 0;
    const char *name = words[i];
    int number = atoi(value);
    if (!strcmp(name, "host")) host = value;
    else if (!strcmp(name, "port")) port = number;
    else if (!strcmp(name, "streams")) streams = number;
    else if (!strcmp(name, "events")) events = number;
    else if (!strcmp(name, "rampMs")) rampMs = number;
    else if (!strcmp(name, "warmMs")) warmMs = number;
    else if (!strcmp(name, "windowMs")) windowMs = number;
    else if (!strcmp(name, "spacingMs")) spacingMs = number;
    else if (!strcmp(name, "marker")) marker = value;
    else if (!strcmp(name, "abortAfter")) abortAfter = number;
    else if (!strcmp(name, "stalled")) stalled = number;
    else if (!strcmp(name, "recut")) recut = number;
    else if (!strcmp(name, "request")) request = slurp(value, &requestLength);
    else if (!strcmp(name, "stalledRequest")) stalledRequest = slurp(value, &stalledLength);
    else { fprintf(stderr, "probe: %s: unknown\n", name); return 2; }
  }
  if (!request || (stalled && !stalledRequest)) { fprintf(stderr, "probe: request: is required\n"); return 2; }
  markerLength = strlen(marker);
  address.sin_family = AF_INET;
  address.sin_port = htons((uint16_t)port);
  inet_pton(AF_INET, host, &address.sin_addr);
  poller = epoll_create1(0);
  aborts = calloc(ABORTS_MAX, sizeof *aborts);
  Stream *all = calloc((size_t)streams, sizeof *all);
  paused = calloc((size_t)streams, sizeof *paused);
  int *idle = calloc((size_t)(stalled ? stalled : 1), sizeof *idle);
  for (int i = 0; i < stalled; i++) idle[i] = connectTo(1);
  /* Loopback connects at once; 50 ms covers a busy listener. */
  if (stalled) usleep(50000);
  for (int i = 0; i < stalled; i++) if (write(idle[i], stalledRequest, stalledLength) < 0) errors++;

  uint64_t start = now(), windowAt = start + ((uint64_t)rampMs + (uint64_t)warmMs) * 1000000ull;
  uint64_t endAt = windowAt + (uint64_t)windowMs * 1000000ull;
  int opened = 0;
  struct epoll_event ready[512];
  for (;;) {
    uint64_t ns = now();
    while (opened < streams && (!rampMs || ns - start >= (uint64_t)opened * (uint64_t)rampMs * 1000000ull / (uint64_t)streams)) {
      all[opened].index = opened;
      begin(&all[opened++]);
    }
    while (pausedCount > 0 && paused[pausedFirst]->againNs <= ns) {
      begin(paused[pausedFirst]);
      pausedFirst = (pausedFirst + 1) % streams;
      pausedCount--;
    }
    if (!inWindow && ns >= windowAt && ns < endAt) {
      inWindow = 1;
      printf("{\"phase\":\"window\"}\n");
      fflush(stdout);
    }
    if (ns >= endAt) break;
    int many = epoll_wait(poller, ready, 512, opened < streams ? 1 : 20);
    for (int i = 0; i < many; i++) {
      Stream *s = ready[i].data.ptr;
      if (ready[i].events & EPOLLOUT) {
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = s};
        int error = 0;
        socklen_t size = sizeof error;
        getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &error, &size);
        if (error) { errors++; restart(s); continue; }
        epoll_ctl(poller, EPOLL_CTL_MOD, s->fd, &e);
        ask(s);
      } else readable(s);
    }
  }
  inWindow = 0;
  printf("{\"phase\":\"end\"}\n");
  fflush(stdout);
  /* A stream that has been silent for much longer than its pace has lost events. */
  uint64_t silence = ((uint64_t)spacingMs * 5 + 3000) * 1000000ull, last = now();
  uint64_t silent = 0;
  for (int i = 0; i < streams; i++) {
    if (all[i].running && last - all[i].lastNs > silence) silent++;
    if (all[i].running && all[i].broken) wrong++;
  }
  stopping = 1;
  printf("{\"events\":%llu,\"reads\":%llu,\"readsWithEvents\":%llu,\"bytes\":%llu,\"begun\":%llu,\"finished\":%llu,"
         "\"finishedInWindow\":%llu,\"lost\":%llu,\"wrong\":%llu,\"errors\":%llu,\"refused\":%llu,\"silent\":%llu",
         (unsigned long long)deltas, (unsigned long long)reads, (unsigned long long)readsWithDeltas,
         (unsigned long long)bytes, (unsigned long long)begun, (unsigned long long)finished,
         (unsigned long long)windowFinished, (unsigned long long)lost, (unsigned long long)wrong,
         (unsigned long long)errors, (unsigned long long)refused, (unsigned long long)silent);
  printHistogram("firstEvent", &firstEvent);
  printHistogram("delay", &delay);
  printHistogram("gap", &gap);
  printf(",\"aborts\":[");
  for (int i = 0; i < abortCount; i++)
    printf("%s[%llu,%llu]", i ? "," : "", (unsigned long long)aborts[i].uid, (unsigned long long)(aborts[i].ns / 1000));
  printf("]}\n");
  return 0;
}
