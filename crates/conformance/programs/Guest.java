import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;

/** Writes over a device that C opens, from and to memory that C allocates, while Java collects its garbage, has direct
 * buffers of its own and starts processes. Prints whether that memory was shared or private. */
final class Guest {
    static native void open();
    static native ByteBuffer take(long length);
    static native void give(ByteBuffer memory);
    static native boolean isShared(ByteBuffer memory);
    static native void write(ByteBuffer from, ByteBuffer to, long length);

    static final int LENGTH = 3 * 4096 + 40, BLOCKS = 32, ROUNDS = 8;

    static void fill(ByteBuffer memory, long tag) {
        for (int at = 0; at < LENGTH; at += 8)
            memory.putLong(at, (tag * 0x9e3779b97f4a7c15L ^ at) * 0xff51afd7ed558ccdL);
    }

    static void check(ByteBuffer memory, long tag) {
        for (int at = 0; at < LENGTH; at += 8)
            if (memory.getLong(at) != ((tag * 0x9e3779b97f4a7c15L ^ at) * 0xff51afd7ed558ccdL))
                throw new IllegalStateException("a word is not what was written, at " + at + " of " + tag);
    }

    public static void main(String[] words) throws Exception {
        System.load(words[0]);
        open();
        var blocks = new ArrayList<ByteBuffer>();
        for (int at = 0; at < BLOCKS; at++)
            blocks.add(take(LENGTH));
        boolean shared = isShared(blocks.get(0));
        for (int round = 0; round < ROUNDS; round++) {
            for (int at = 0; at < BLOCKS; at++)
                fill(blocks.get(at), round * 100 + at);
            List<ByteBuffer> own = new ArrayList<>();
            for (int at = 0; at < 200; at++) {
                own.add(ByteBuffer.allocateDirect(LENGTH));
                fill(own.get(at), at);
            }
            var child = new ProcessBuilder("sh", "-c", "echo $$ && read line").redirectErrorStream(true).start();
            for (int at = 0; at < BLOCKS; at += 2)
                write(blocks.get(at), blocks.get(at + 1), LENGTH);
            for (int at = 0; at < 200; at++)
                check(own.get(at), at);
            own = null;
            System.gc();
            child.getOutputStream().close();
            child.waitFor();
            for (int at = 0; at < BLOCKS; at++) {
                check(blocks.get(at), round * 100 + at / 2 * 2);
                if (isShared(blocks.get(at)) != shared)
                    throw new IllegalStateException("some is shared, some is private");
            }
            for (int at = round % 4; at < BLOCKS; at += 4) {
                give(blocks.get(at));
                blocks.set(at, take(LENGTH));
            }
        }
        for (var block : blocks)
            give(block);
        System.out.println(shared ? "shared" : "private");
    }
}
