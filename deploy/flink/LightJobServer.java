import org.apache.beam.runners.flink.FlinkJobServerDriver;

/**
 * Beam's job server without its luggage: it ships its whole class path with each job, 150 MB that the cluster started by
 * cluster.py has already. So it is told of a class path of one empty jar, after Java has read the real one.
 */
public class LightJobServer {
  public static void main(String[] arguments) throws Exception {
    System.setProperty("java.class.path", System.getProperty("headcount.shipped"));
    FlinkJobServerDriver.main(arguments);
  }
}
